#!/usr/bin/env bash
# Table 1: growth of the cost of one layer with the length of the sequence, measured and counted.
#
#     examples/table1/run.sh [OUTPUT, default runs/table1]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
output=${1:-runs/table1}
python=${PYTHON:-python}

"$python" "$here/../../benchmarks/complexity.py" --output "$output"
"$python" "$here/record.py" "$output/complexity.csv" "$output/results.json"
