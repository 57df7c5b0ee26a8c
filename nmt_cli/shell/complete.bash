# Completion of nmt for bash 4.2 or later, @MARK@

_nmt_tables=@TABLES@
_nmt_answer=@ANSWER@

_nmt() {
    local line=${COMP_LINE:0:COMP_POINT} current word known
    local -a words reply
    IFS=$' \t\n' read -ra words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=('')
    current=${words[${#words[@]} - 1]}
    mapfile -t reply < <(@PYTHON@ -ISc "$_nmt_answer" "${words[@]}" <<< "$_nmt_tables" 2> /dev/null)
    COMPREPLY=("${reply[@]:1}")
    COMPREPLY=("${COMPREPLY[@]%%$'\t'*}")
    if [[ ${reply[0]} == files ]]; then
        ((${#COMPREPLY[@]})) || { compopt -o default && return; } # readline completes paths
        while IFS= read -r word; do
            printf -v known %q "$word"
            [[ -d $word ]] && known+=/
            COMPREPLY+=("$known")
        done < <(compgen -f -- "$current")
    fi
    ((${#COMPREPLY[@]} == 1)) && [[ ${COMPREPLY[0]} == *[=./] ]] && compopt -o nospace
    # Readline replaces only the text after the last = or : of a word.
    COMPREPLY=("${COMPREPLY[@]#"${current%"${current##*[$COMP_WORDBREAKS]}"}"}")
}

complete -F _nmt @PROGRAMS@
