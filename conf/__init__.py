"""Configuration of the commands; plain YAML."""
