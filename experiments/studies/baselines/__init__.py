"""What the online GP is held against: batch models that see all training rows at once, and floors."""
