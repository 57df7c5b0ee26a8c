# Completion of nmt for fish, @MARK@

set -g __nmt_tables @TABLES@
set -g __nmt_answer @ANSWER@

function __nmt_complete
    set -l current (commandline -ct)
    set -l reply (echo -n $__nmt_tables | @PYTHON@ -ISc $__nmt_answer (commandline -opc) "$current" 2> /dev/null)
    printf '%s\n' $reply[2..]
    if test "$reply[1]" = files
        set -l start (string match -r '^.*=' -- "$current")
        for path in (__fish_complete_path (string replace -r '^.*=' '' -- "$current"))
            echo "$start$path"
        end
    end
end

for program in @PROGRAMS@
    complete -c $program -f -a '(__nmt_complete)'
end
