# For scripts that read Multi30k: says before anything else which of the files named is missing.
needs() {
    local file
    for file in "$@"; do
        if [ ! -e "$file" ]; then
            echo "${0##*/}: $file is missing; examples/multi30k/README.md says where the text is to be had" >&2
            exit 1
        fi
    done
}
