# Completion of nmt for fish, @MARK@

function __nmt_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l program (string replace -r '.*/' '' -- $words[1])
    set -l flag
    set -l prefix ''
    set -l values ''
    set -l rows
    if test $program = nmt; and set -q words[2] # nmt train ... is nmt-train ...
        if test $words[2] = help; and set -q words[3]
            set words nmt $words[3] --help $words[4..]
        end
        set program nmt-$words[2]
        set words $program $words[3..]
    end
    switch $program
@TABLES@
    end

    # The flag whose value this is: the word before, or with several values an earlier one.
    set -l place (count $words)
    while test $place -gt 1; and not string match -q -- '-*' $words[$place]
        set place (math $place - 1)
    end
    if string match -q -- '-*' $current
        set place 0
    end
    if test $place -gt 1
        set flag $words[$place]
    else if string match -q -- '*=*' $current
        set flag (string replace -r '=.*' '' -- $current)
        set prefix $flag=
        set values -
    end
    if set -q flag[1]
        set -l row (string match -- $flag\t'*' $rows; string match -- $flag=\t'*' $rows)
        set -q row[1]; and set values (string split \t -- $row[1])[2]
        if test $place -ne (count $words); and test -z "$prefix"; and not string match -q -- '\**' $values
            set values ''
        end
    end
    set values (string replace -r '^\*' '' -- $values)
    set -l text (string replace -- "$prefix" '' $current)
    switch "$values"
        case @
            for path in (__fish_complete_path $text)
                echo $prefix$path
            end
            return
        case -
            return
        case '?*'
            set -l several (string replace -r '[^,]*$' '' -- $text)
            printf '%s\n' $prefix$several(string split ' ' -- $values)
            return
    end

    for row in (string match -- "$current*" $rows)
        set -l fields (string split \t -- $row)
        set -l section (string replace -r '\..*' . -- $fields[1])
        if string match -q -- '*.*=' $fields[1]; and not string match -q -- '*.*' $current
            echo $section\toptions of (string trim -r -c . -- $section)
        else if test $fields[1] != @
            echo $fields[1]\t$fields[3]
        end
    end
    if string match -q -- '@*' $rows[-1]; and not string match -q -- '-*' $current
        __fish_complete_path $current
    end
end

for program in @PROGRAMS@
    complete -c $program -f -a '(__nmt_complete)'
end
