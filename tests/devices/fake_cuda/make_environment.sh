#!/usr/bin/env bash
# Make FOLDER: an environment with torch's CUDA build, and the libraries of the fake CUDA runtime.
# Needs Linux on x86_64, Python 3.11, g++ and 5 GB of disk. PYTHON and PIP_ARGS as in the Makefile.
set -euo pipefail

folder=$1
here=$(dirname "$(readlink -f "$0")")
root=$here/../../..
torch=2.13.0 # kernels.py replaces functions that differ between versions

"${PYTHON:-python3.11}" -m venv "$folder"
# shellcheck disable=SC2086
install() { "$folder/bin/python" -m pip install --quiet ${PIP_ARGS:-} --constraint "$root/constraints.txt" "$@"; }
install "torch===$torch" # three signs: not a CPU build of the same version, 2.13.0+cpu
install --editable "$root[test]"

packages=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
g++ -O1 -shared -fPIC -Wall -Wextra -I "$packages/triton/backends/nvidia/include" \
  -o "$folder/libfakecuda.so" "$here/runtime.cpp"
gcc -O1 -shared -fPIC -Wall -Wextra -o "$folder/libcuda.so.1" "$here/driver.c"
gcc -O1 -shared -fPIC -Wall -Wextra -o "$folder/libnvidia-ml.so.1" "$here/management.c"

# torch calls this function at the end of its import, in every process.
mkdir -p "$packages/fake_cuda-1.dist-info"
printf 'Metadata-Version: 2.1\nName: fake-cuda\nVersion: 1\n' >"$packages/fake_cuda-1.dist-info/METADATA"
printf '[torch.backends]\nfake_cuda = tests.devices.fake_cuda.kernels:install\n' \
  >"$packages/fake_cuda-1.dist-info/entry_points.txt"
touch "$folder/.installed"
