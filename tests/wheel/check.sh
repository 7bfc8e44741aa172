#!/usr/bin/env bash
# Installs the built wheel away from the checkout and tests what was installed.
#   tests/wheel/check.sh dist/trtllm_kit-*.whl
set -euo pipefail

wheel=$(realpath "$1")
root=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

mkdir "$scratch/model"
cp "$root/tests/golden/models/llama-3.1-405b.json" "$scratch/model/config.json"

# The core alone, on every Python it promises that this machine has.
for python in python3.11 python3.12 python3.13; do
  "$python" -c 'import venv, ensurepip' 2>/dev/null || { echo "no usable $python here: not tried"; continue; }
  "$python" -m venv "$scratch/$python"
  "$scratch/$python/bin/python" -m pip install --quiet "$wheel"
  (
    cd "$scratch"
    PATH="$scratch/$python/bin:$PATH"
    trtkit --version
    trtkit profiles list >/dev/null
    trtkit profiles validate gh200-nvl32-llama3.1-405b-fp8 >/dev/null
    trtkit plan "$scratch/model" --profile gh200-nvl32-llama3.1-405b-fp8 >/dev/null
    "$scratch/$python/bin/python" -c 'from trtllm_kit.resources import triton_models as f; assert "_data" in str(f()) and (f() / "llmapi/model.py").is_file()'
  )
  echo "core works on $python"
done

# Against the installed wheel with every extra: the tests of what a wheel can lack, which is data files, programs it
# starts by path, and the command itself. The others run once, in the checkout.
python=${PYTHON:-python3.11}
"$python" -m venv "$scratch/full"
"$scratch/full/bin/python" -m pip install --quiet "$wheel[rehearsal,hub,dev]"
mkdir "$scratch/project"
cp -r "$root/tests" "$root/docs" "$root/pyproject.toml" "$root"/*.md "$scratch/project/"
export TRTKIT_SHARED=${TRTKIT_SHARED:-$root/../shared}
cd "$scratch/project"
PATH="$scratch/full/bin:$PATH" "$scratch/full/bin/python" -m pytest -q -n auto --maxprocesses 8 --dist loadfile -p no:cacheprovider -m "not triton and not smollm2 and not oracle and not slow and not gpu" \
  tests/cli/test_{exit_codes,profiles,plan_text,upstream,convert_unet,evaluate}.py tests/upstream tests/repository \
  tests/build/test_{toolchain,llm_api,engine}.py tests/serve tests/plan/test_golden.py tests/spec/test_hardware.py \
  tests/test_shipped_yaml.py
