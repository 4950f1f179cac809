"""Every way in which bash can set a variable is noticed where the variable changes what programs do."""

import pytest

from treadle.tools.shell.parser import parse_commands

WAYS = r"""
NAME=0
NAME+=0
NAME[0]=0
NAME=(0)
x=1 NAME=0
(( NAME=0 ))
((NAME++))
((++NAME))
((NAME+=1))
((NAME<<=1))
((NAME[0]=0))
((x=NAME=0))
((x,NAME=0))
((1?NAME=0:0))
echo $((NAME=0))
echo $[NAME=0]
a[NAME=0]=1
echo ${a[NAME=0]}
echo ${x:NAME=0:1}
echo ${x:0:NAME=1}
echo ${NAME:=0}
echo ${NAME=0}
for NAME in 0; do :; done
for ((NAME=0;NAME<1;NAME++)); do :; done
select NAME in 0; do break; done
[[ 0 -eq NAME=0 ]]
[[ NAME=0 -eq 0 ]]
[[ -v a[NAME=0] ]]
test -v 'a[NAME=0]'
let NAME=0
let "NAME = 0"
let x=NAME=0
true {NAME}</dev/null
echo x {NAME}<f
exec {NAME}<f
exec {NAME}>&1
cat {NAME}<<<x
{ :; } {NAME}<f
while :; do break; done {NAME}<f
wait -p NAME
wait -n -p NAME 1
wait -pNAME
wait -np NAME
read NAME
read -r NAME <<< 0
read -a NAME
read -rp x NAME
mapfile NAME
mapfile -t NAME
readarray NAME
getopts a NAME
printf -v NAME 0
printf -vNAME 0
printf -v NAME[0] 0
export NAME=0
export NAME
declare NAME=0
declare -x NAME=0
declare -n r=NAME; r=0
typeset -n r=NAME; r=0
local -n r=NAME
declare -i x=NAME=0
declare -i x; x=NAME=0
typeset -i x; x="NAME=0"
declare -ia x=(NAME=0)
readonly NAME=0
unset NAME
unset -v NAME
unset 'a[NAME=0]'
coproc NAME { :; }
case $((NAME=0)) in *) ;; esac
if ((NAME=0)); then :; fi
{ ((NAME=0)); }
case x in x) ((NAME=0));; esac
while ((NAME=0)); do :; done
until (( NAME=1 )); do :; done
echo "$(( NAME=0 ))"
cat <<E~$((NAME=0))~E
echo ${x/$((NAME=0))/}
echo ${x[$((NAME=0))]}
a=([NAME=0]=1)
a+=([NAME=0]=1)
declare -a a=([NAME=0]=1)
declare a[NAME=0]=1
env NAME=0 true
eval NAME=0
builtin export NAME=0
command export NAME=0
builtin read NAME
command let NAME=0
builtin printf -v NAME 0
\export NAME=0
NAME=0 :
IFS= read NAME
: ${NAME:=0}
: $((NAME=0))
: $((NAME--))
((a[NAME=0]))
((a[0]=NAME=0))
(("NAME=0"))
((~NAME~=0))
"""
"""One line each: `NAME` stands for the variable, and `~` for a line break."""
ORDINARY = r"""
((i++))
((total += 2 * 3))
echo $((1 + 2))
n=3; echo $((n * 2))
for ((i=0; i<3; i++)); do echo $i; done
n=1; [[ $n -eq 1 ]]
echo $((RANDOM % 6))
cat {fd}<f
wait
wait -n
wait -p done
jobs -l
let i=1+1
a[0]=1; echo ${a[0]}
echo {a}
n=2; echo ${x:1:n}
"""


@pytest.mark.parametrize("way", WAYS.split("\n")[1:-1])
def test_a_line_that_sets_a_variable_of_other_programs_is_opaque(way: str) -> None:
    for name in ("PATH", "GIT_CONFIG_COUNT", "LD_PRELOAD", "IFS"):
        line = way.replace("NAME", name).replace("~", "\n")
        assert parse_commands(f"{line}\nls x").opaque is not None, line


@pytest.mark.parametrize("line", ORDINARY.split("\n")[1:-1])
def test_ordinary_arithmetic_and_descriptors_are_understood(line: str) -> None:
    assert parse_commands(f"{line}\nls x").opaque is None


def test_jobs_may_run_a_command() -> None:
    assert [call.words[0] for call in parse_commands("jobs -x rm x").calls][-1] == "rm"
