"""`sysid-validate`: how good a stored model predicts and simulates records, or a simulated plant."""

from experiments.launch import entry

main = entry("validate", "experiments.validation.run")

if __name__ == "__main__":
    main()
