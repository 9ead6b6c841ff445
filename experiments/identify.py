"""`sysid-identify`: identify a system online while it is simulated, or from a record."""

from experiments.launch import entry

main = entry("identify", "experiments.identification")

if __name__ == "__main__":
    main()
