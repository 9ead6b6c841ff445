"""`sysid-reproduce`: every table and figure of the paper, beside the published numbers."""

from experiments.launch import entry

main = entry("reproduce", "experiments.reproduction")

if __name__ == "__main__":
    main()
