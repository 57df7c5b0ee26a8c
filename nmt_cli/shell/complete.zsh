#compdef @PROGRAMS@
# Completion of nmt for zsh, @MARK@

typeset -g _nmt_tables=@TABLES@
typeset -g _nmt_answer=@ANSWER@

_nmt() {
    local row
    local -a reply whole open
    reply=("${(@f)$(@PYTHON@ -ISc $_nmt_answer "${(@)words[1,CURRENT-1]}" "$PREFIX" <<< $_nmt_tables 2> /dev/null)}")
    for row in $reply[2,-1]; do
        [[ ${row%%$'\t'*} == *[=.] ]] && open+=("${row/$'\t'/:}") || whole+=("${row/$'\t'/:}")
    done
    _describe word whole
    _describe key open -S ''
    if [[ $reply[1] == files ]]; then
        compset -P '*='
        _files
    fi
}

if [[ $funcstack[1] == _nmt ]]; then
    _nmt "$@"
else
    compdef _nmt @PROGRAMS@
fi
