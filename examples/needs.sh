# For scripts that read Multi30k: stop with an error if one of these files is missing.
needs() {
    local file
    for file in "$@"; do
        if [ ! -e "$file" ]; then
            echo "${0##*/}: $file is missing; examples/multi30k/README.md says where to get the text" >&2
            exit 1
        fi
    done
}
