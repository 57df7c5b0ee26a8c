#compdef @PROGRAMS@
# Completion of nmt for zsh, @MARK@

_nmt() {
    local program=${words[1]:t} tab=$'\t' flag='' values='' row word i
    local -a rows fields flags others
    local -aU keys
    if [[ $program == nmt ]] && ((CURRENT > 2)); then # nmt train ... is nmt-train ...
        if [[ ${words[2]} == help ]] && ((CURRENT > 3)); then
            words=(nmt "${words[3]}" --help "${(@)words[4,-1]}")
        fi
        program=nmt-${words[2]}
        words=($program "${(@)words[3,-1]}")
        ((CURRENT = CURRENT - 1))
    fi
    case $program in
@TABLES@
    esac

    # The flag whose value this is: the word before, or with several values an earlier one.
    for ((i = CURRENT - 1; i > 1; i--)); do
        [[ ${words[i]} == -* ]] && flag=${words[i]} && break
    done
    [[ $PREFIX == -* ]] && flag=''
    if [[ -z $flag && $PREFIX == *=* ]]; then
        flag=${PREFIX%%=*} values=- i=$((CURRENT - 1))
        compset -P 1 '*='
    fi
    for row in $rows; do
        fields=("${(@ps:\t:)row}")
        if [[ -n $flag && ($fields[1] == $flag || $fields[1] == $flag=) ]]; then
            values=$fields[2]
            break
        fi
    done
    ((i == CURRENT - 1)) || [[ $values == \** ]] || values=''
    case ${values#\*} in
    @) _files && return ;;
    -) _message value && return ;;
    '') ;;
    *)
        compset -P '*,'
        compadd -- ${=values#\*} && return
        return
        ;;
    esac

    for row in $rows; do
        fields=("${(@ps:\t:)row}")
        word=$fields[1]
        case $word in
        @) ;;
        -*) flags+=("$word:$fields[3]") ;;
        *.*=) [[ $PREFIX == *.* ]] && keys+=("$word:$fields[3]") || keys+=("${word%%.*}.:options of ${word%%.*}") ;;
        *=) keys+=("$word:$fields[3]") ;;
        *) others+=("$word:$fields[3]") ;;
        esac
    done
    if [[ $PREFIX == -* ]]; then
        _describe -o flag flags
        return
    fi
    (($#others)) && _describe word others
    (($#keys)) && _describe key keys -S ''
    [[ $rows[-1] == @* ]] && _files
}

if [[ $funcstack[1] == _nmt ]]; then
    _nmt "$@"
else
    compdef _nmt @PROGRAMS@
fi
