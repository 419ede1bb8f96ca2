package cli

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwire/execwire/integration/harness"
)

// habits are command lines of users of docker, ssh, kubectl, scp and coreutils, in order,
// with what they print on stdout and stderr, and their exit code if it is not 0. The working
// directory is empty in the beginning. A line of want that begins with ~ is a part of the
// output.
var habits = []struct {
	line string
	code int
	want string
}{
	// docker run, ps, logs, kill
	{line: "execwire run -d --name web --rm -w /tmp -- sh -c 'pwd; echo two; echo three; exec sleep 600'", want: "web"},
	{line: "execwire wait --pattern three web && execwire logs -n 2 web", want: "three\ntwo\nthree"},
	{line: "execwire logs --tail 1 web", want: "three"},
	{line: "execwire logs --lines 0 web"},
	{line: "execwire logs -c 4 web", want: "ree"},
	{line: "execwire logs -t -n 1 web | sed -E 's/^20[0-9-]{8}T[0-9:]{8}\\.[0-9]{9}Z /when /'", want: "when three"},
	{line: "execwire logs --since 1h --until 2100-01-01 web | tail -1; execwire logs --since 2100-01-01T00:00:00Z web; execwire logs --until 2001-01-01 web", want: "three"},
	{line: "execwire logs --since \"$(execwire logs -t -n 1 web | cut -d ' ' -f 1)\" web | tail -1", want: "three"},
	{line: "execwire logs --since yesterday web", code: 2, want: "~\"yesterday\" for \"--since\""},
	{line: "execwire kill -9 web && execwire wait web", code: 137, want: "sent SIGKILL to web"},
	{line: "execwire run -d --id t -- sleep 600; execwire kill -TERM t; execwire wait t", code: 143, want: "t\nsent SIGTERM to t"},
	{line: "execwire run -d --id s -- sleep 600; execwire kill -SIGTERM s; execwire wait s", code: 143, want: "s\nsent SIGTERM to s"},
	{line: "execwire kill -NOPE s", code: 2, want: "~unknown shorthand flag"},
	{line: "execwire run --workdir /usr -- pwd", want: "/usr"},
	{line: "echo in | execwire run --stdin -- cat", want: "in"},
	{line: "execwire run -u nobody -- sh -c 'id -un; pwd; echo $USER $HOME; echo again >/dev/stdout'", want: "nobody\n/\nnobody /nonexistent\nagain"},
	{line: "execwire run -u 4321:1 -w /tmp -- sh -c 'id -u; id -G; pwd'", want: "4321\n1\n/tmp"},
	{line: "execwire run -u nobody -d --name u -- sleep 600; execwire ps | cut -f 1,4 | grep ^u; execwire kill u >/dev/null", want: "u\nu\tnobody"},
	{line: "execwire run --user nosuch -- id", code: 125, want: "~--user \"nosuch\" names a user that /etc/passwd does not have"},
	// A number is seconds.
	{line: "execwire run --timeout 0.05 -- sleep 600", code: 124, want: "~exceeded its timeout"},
	{line: "execwire run -d --id w --grace 5 -- true", code: 2, want: "~--grace"},
	{line: "execwire run --timeout 600 --grace 30 -- echo quick", want: "quick"},
	{line: "execwire run --timeout soon -- true", code: 2, want: `~"soon" is not a duration; write for example 30s, 1h30m, or a number of seconds`},
	// Files
	{line: "printf 'a\\nb\\n' >one; printf c >two; execwire cat -n $PWD/one $PWD/two", want: "     1\ta\n     2\tb\n     3\tc"},
	{line: "execwire cp :$PWD/one -", want: "a\nb"},
	{line: "echo piped | execwire cp - :$PWD/three && cat three", want: "piped"},
	{line: "execwire cp - one :$PWD/four </dev/null", code: 2, want: "~- is stdin or stdout"},
	{line: "execwire cp -r - :$PWD/four </dev/null", code: 2, want: "~--recursive: it is not for a copy from stdin"},
	{line: "execwire cp - :$PWD/four/ </dev/null; c=$?; [ ! -e four ] && exit $c", code: 2, want: "~: name the file to write stdin to"},
	{line: "execwire cp \":$PWD/t[!x]*\" -", code: 2, want: "~the pattern stands for 2 files"},
	{line: "execwire cp \":$PWD/t[!h]*\" -", want: "c"},
	{line: "mkdir '[s]' s && echo right >'[s]/x.log' && execwire cat \":$PWD/[[]s]/*\"", want: "right"},
	{line: "execwire cp :$PWD -", code: 125, want: "~directory\n~copy it to a directory with -r"},
	{line: "execwire touch $PWD/src-touched && execwire touch \":$PWD/src-*\" && ls src-*", want: "src-touched"},
	{line: "touch -d @1 two; execwire touch -c $PWD/two $PWD/none && [ $(stat -c %Y two) -gt 1 ] && ls none", code: 2, want: "~none"},
	{line: "mkdir src && printf x >src/x.conf && printf y >src/y.conf && touch -d @1 src/x.conf src/.z.conf && chmod 640 src/x.conf && execwire cp -a src :$PWD/copy && stat -c '%a %Y' copy/x.conf", want: "640 1"},
	{line: "mkdir into && execwire cp \":$PWD/src/*.conf\" into && ls -A into", want: "x.conf\ny.conf"},
	{line: "execwire cp \":$PWD/src/?.conf\" nowhere", code: 125, want: "~there is no such directory"},
	{line: "execwire ls \":$PWD/src/[xy]*\" \":$PWD/t*o\" | sed s,.*/,,", want: "x.conf\ny.conf\ntwo"},
	{line: "execwire ls -d \":$PWD/s*/\" \":$PWD/s*/.\" | sed s,.*/,,", want: "s\nsrc\ns\nsrc"}, // not src-touched
	{line: "execwire ls \":$PWD/no*\"", code: 1, want: "~/no*: "},
	{line: "execwire ls '*'", code: 1, want: "~/*: "}, // without a colon it is a name
	{line: "execwire chmod 600 $PWD/one && stat -c %a one", want: "600"},
	{line: "execwire chmod u+x,go=r \":$PWD/src/?.conf\" && stat -c %a src/?.conf", want: "744\n744"},
	{line: "execwire chmod -x $PWD/src/x.conf && stat -c %a src/x.conf", want: "644"},
	{line: "execwire chmod -R go= $PWD/src && stat -c %a src src/x.conf src/.z.conf", want: "700\n600\n600"},
	{line: "execwire chmod 9 $PWD/one", code: 2, want: `~the mode is "9"`},
	{line: "execwire chmod 600 $PWD/none", code: 1, want: "~/none: "},
	{line: "execwire ls -l $PWD/one | cut -c-10; { execwire ls -l $PWD/one; ls -l one; } | tr -s ' ' | cut -d' ' -f 3,4 | uniq | grep -c .", want: "-rw-------\n1"},
	{line: "{ execwire ls -n $PWD/one | tr -s ' ' | cut -d' ' -f 3,4; stat -c '%u %g' one; } | uniq | grep -c .", want: "1"},
	{line: "head -c 1536 /dev/zero >big && execwire ls -lh $PWD/big | tr -s ' ' | cut -d' ' -f 5", want: "1.5K"},
	{line: "execwire rm \":$PWD/into/*\" && ls -A into"},
	// What is meant instead
	{line: "execwire exec -it web bash", code: 2, want: `~"exec" is not a command: use run` + "\n~attach"},
	{line: "execwire exec --help", code: 2, want: "~use run"},
	{line: "execwire stop web", code: 2, want: "~use kill"},
	{line: "execwire inspect --format x web", code: 2, want: "~use ps"},
	{line: "execwire tail -f web", code: 2, want: "~use logs -f"},
	{line: "execwire attahc web", code: 2, want: "~did you mean attach?"},
	{line: "execwire run --tiemout 5 true", code: 2, want: "~did you mean --timeout?"},
	{line: "printf 'default_grce = 5' >conf; execwire config check conf", code: 1, want: "~did you mean default_grace?"},
	// Errors name what was typed.
	{line: "execwire run 'echo hi | cat'", code: 127, want: "~run starts no shell; name one: execwire run -- sh -c 'echo hi | cat'"},
	{line: "execwire run --env PATH=/nonexistent-directory -- nosuch 2>&1 | grep -c nonexistent-directory", code: 1, want: "0"},
	{line: "execwire run --nice 500 -- true", code: 125, want: "~ --nice: 500 is not between"},
	{line: "execwire run --limit cpu-seconds=1 --limit cpu-seconds=2 -- true", code: 125, want: "~--limit cpu-seconds=2"},
	{line: "execwire run --session $(printf %300s | tr ' ' s) -- true", code: 125, want: "~execwire: --session is longer"},
	{line: "execwire run -d --name $(printf %2000s | tr ' ' n) -- true", code: 125, want: "~execwire: --id is longer"},
	{line: "execwire run -d --id p -- sleep 600; execwire wait --pattern '(' p; c=$?; execwire kill --force p >/dev/null; exit $c", code: 125, want: "~--pattern is not an expression"},
	{line: "execwire watch --settle 50 /tmp", code: 125, want: "~--settle is 50s"},
	{line: "execwire run -- \"$(printf 'a\\377')\"", code: 2, want: "~argument 0 is \"a\\xff\", which is not UTF-8"},
}

// Commands that the fingers know work, or say what to type instead.
func TestHabits(t *testing.T) {
	server := harness.Serve(t)
	var script strings.Builder
	for i, habit := range habits {
		fmt.Fprintf(&script, "printf '\\001%d\\002'; ( %s ) 2>&1; printf '\\002%%d' $?\n", i, habit.line)
	}
	shell := harness.Prepare(exec.Command("sh", "-c", script.String()))
	shell.Dir = harness.ShortDir(t)
	shell.Env = append(shell.Env, "EXECWIRE_SERVER="+server.URLs[harness.UnixTransport],
		"PATH="+filepath.Dir(harness.Execwire)+":/usr/bin:/bin")
	result := shell.Complete(t, nil)
	outcomes := strings.Split(result.Stdout, "\001")[1:]
	if len(outcomes) != len(habits) || result.Stderr != "" {
		t.Fatalf("the shell ended with %+v", result)
	}
	for i, habit := range habits {
		parts := strings.Split(outcomes[i], "\002")
		if len(parts) != 3 {
			t.Fatalf("%s: %q", habit.line, outcomes[i])
		}
		output := strings.TrimSuffix(parts[1], "\n")
		isWanted := parts[2] == fmt.Sprint(habit.code)
		if !strings.HasPrefix(habit.want, "~") {
			isWanted = isWanted && output == habit.want
		} else {
			for line := range strings.SplitSeq(habit.want, "\n") {
				isWanted = isWanted && strings.Contains(output, line[1:])
			}
		}
		if !isWanted {
			t.Errorf("%s\nexit code %s, want %d; output:\n%s\nwant:\n%s", habit.line, parts[2], habit.code, output, habit.want)
		}
	}
}
