#!/bin/sh
# Says in one sentence what this machine lacks to build Octavo, before pip or CMake is started.
# Prints the chosen Python on success. PYTHON and CXX override what is looked for.
set -eu

fail() {
    echo "octavo: $1" >&2
    exit 1
}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python}; do
        if command -v "$candidate" >/dev/null 2>&1 && new_enough "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    found=$(${PYTHON:-python3} --version 2>&1) || found="none at all"
    fail "Python 3.11 or newer is needed, found: $found (install one, or name it: make PYTHON=/path/to/python3.12)"
}

check_python() {
    "$1" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "$1 has no venv module; install it (Debian, Ubuntu: apt-get install python3-venv)"
    "$1" -c 'import os, sysconfig as s; assert os.path.exists(s.get_path("include") + "/Python.h")' \
        2>/dev/null ||
        fail "the headers of $1 (Python.h) are missing; install them (Debian, Ubuntu: apt-get install python3-dev)"
}

find_compiler() {
    for candidate in ${CXX:-c++ g++ clang++}; do
        if command -v "$candidate" >/dev/null 2>&1; then
            echo "$candidate"
            return
        fi
    done
    fail "no C++ compiler found${CXX:+ under the name CXX=$CXX}; install GCC 11, Clang 14 or newer (Debian, Ubuntu: apt-get install g++)"
}

# A real C++20 program decides; version numbers are only for the sentence.
check_compiler() {
    object=$(mktemp)
    program='#include <bit>
#include <span>
#include <concepts>
template <std::integral T> constexpr int ones(T x) { return std::popcount(static_cast<unsigned>(x)); }
int f(std::span<const int> s) { return ones(s.empty() ? 7 : s[0]); }'
    flags="-std=c++20"
    case $(uname -m) in x86_64 | amd64) flags="$flags -march=x86-64-v4 -mavx512bf16" ;; esac
    # shellcheck disable=SC2086
    if ! echo "$program" | "$1" $flags -x c++ -c - -o "$object" 2>/dev/null; then
        rm -f "$object"
        fail "the C++ compiler is too old or broken: $("$1" --version 2>/dev/null | head -n 1) cannot build a C++20 program; GCC 11, Clang 14 or newer is needed (choose another with CXX=...)"
    fi
    rm -f "$object"
}

python=$(find_python)
check_python "$python"
compiler=$(find_compiler)
check_compiler "$compiler"
echo "$python"
