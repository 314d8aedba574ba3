#!/usr/bin/env bash
# laws -- seeds of the simulator: random jobs of partial and lagged allreduces with skew, freezes,
# cuts and crashes, each judged by the laws of relaxed operations (docs/testing.md).
#
# usage: laws.sh RUBATO-SIM FIRST_SEED SEEDS [OPTIONS]
seeds=$3
[[ ${TEST_LENGTH-normal} == short ]] && seeds=$((seeds / 10))
[[ ${TEST_LENGTH-normal} == long ]] && seeds=$((seeds * 20))
exec "$1" laws --seed "$2" --seeds "$seeds" "${@:4}"
