"""`sysid-generate`: a benchmark folder that others can use without this toolbox."""

from experiments.launch import entry

main = entry("generate", "experiments.generation.run")

if __name__ == "__main__":
    main()
