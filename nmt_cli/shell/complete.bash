# Completion of nmt for bash 4.2 or later, @MARK@

_nmt() {
    local line=${COMP_LINE:0:COMP_POINT} program=${1##*/} tab=$'\t'
    local IFS=$' \t\n' current flag='' values='' prefix='' files='' row word known i
    local -a words rows
    local -A seen
    COMPREPLY=()
    read -ra words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=('')
    if [[ $program == nmt ]] && ((${#words[@]} > 2)); then # nmt train ... is nmt-train ...
        [[ ${words[1]} == help ]] && ((${#words[@]} > 3)) && words=(nmt "${words[2]}" --help "${words[@]:3}")
        program=nmt-${words[1]}
        words=("$program" "${words[@]:2}")
    fi
    case $program in
@TABLES@
    esac
    current=${words[${#words[@]} - 1]}

    # The flag whose value this is: the word before, or with several values an earlier one.
    for ((i = ${#words[@]} - 2; i > 0; i--)); do
        [[ ${words[i]} == -* ]] && flag=${words[i]} && break
    done
    [[ $current == -* ]] && flag=''
    if [[ -z $flag && $current == *=* ]]; then
        prefix=${current%%=*}= values=- i=$((${#words[@]} - 2))
    fi
    for row in "${rows[@]}"; do
        word=${row%%"$tab"*}
        if [[ $word == "$flag" || ( -n $prefix && ( $word == "$prefix" || $word == "${prefix%=}" ) ) ]]; then
            values=${row#*"$tab"}
            break
        fi
    done
    ((i == ${#words[@]} - 2)) || [[ $values == \** ]] || values=''
    case ${values#\*} in
    @) compopt -o default && return ;; # readline completes paths
    -) return ;;
    '')
        [[ -n $prefix ]] && return
        for row in "${rows[@]}"; do
            word=${row%%"$tab"*}
            if [[ $word == @ ]]; then
                [[ $current == -* ]] || files=1
                continue
            fi
            [[ $current != *.* && $word == *.*= ]] && word=${word%%.*}. # first the section, then its keys
            [[ $word == "$current"* && ( $word != -* || $current == -* ) ]] && seen[$word]=1
        done
        ;;
    *)
        [[ ${current#"$prefix"} == *,* ]] && prefix=${current%,*},
        for word in ${values#\*}; do
            [[ $prefix$word == "$current"* ]] && seen[$prefix$word]=1
        done
        ;;
    esac
    if [[ -n $files ]]; then
        ((${#seen[@]})) || { compopt -o default && return; }
        while IFS= read -r word; do
            printf -v known %q "$word"
            [[ -d $word ]] && known+=/
            seen[$known]=1
        done < <(compgen -f -- "$current")
    fi
    COMPREPLY=("${!seen[@]}")
    ((${#COMPREPLY[@]} == 1)) && [[ ${COMPREPLY[0]} == *[=./] ]] && compopt -o nospace

    # Readline replaces only the text after the last = or : of a word.
    prefix=''
    for word in = :; do
        [[ $COMP_WORDBREAKS == *$word* && ${current##*"$word"} != "$current" ]] || continue
        known=${current%"${current##*"$word"}"}
        ((${#known} > ${#prefix})) && prefix=$known
    done
    COMPREPLY=("${COMPREPLY[@]#"$prefix"}")
}

complete -F _nmt @PROGRAMS@
