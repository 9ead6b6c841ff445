"""Tables as printed in the paper."""
