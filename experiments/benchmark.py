"""`sysid-benchmark`: measure every speed and accuracy claim of the toolbox."""

from experiments.launch import entry

main = entry("benchmark", "experiments.benchmarks.session")

if __name__ == "__main__":
    main()
