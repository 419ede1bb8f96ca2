package conformance

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/config"
)

// waitFor makes a shell wait for a file of the scenario. The recorded processes slept instead,
// which defines no order.
func waitFor(name string) string { return "while [ ! -e " + name + " ]; do sleep 0.02; done" }

// instead replaces a part of a message in JSON.
func instead(at int, pairs ...string) func(int, string) string {
	replacer := strings.NewReplacer(pairs...)
	return func(index int, text string) string {
		if index != at {
			return text
		}
		if replaced := replacer.Replace(text); replaced != text {
			return replaced
		}
		panic("there is nothing to replace in " + text)
	}
}

// scripts are the actions of scenarios besides messages, by the first two digits of their
// names.
var scripts = map[string]script{
	"01_ids":               {rewrite: literally(idTexts())},
	"01_envelope_variants": {rewrite: literally(envelopeTexts)},
	"01_batch":             {rewrite: wholeBatches},

	"02_start_validation": {prepare: (*replay).makePrograms, before: (*replay).makeRunnable},
	"02_env_and_path": {prepare: func(r *replay) {
		r.makeDir("bin")
		r.makeFile("bin/mytool", "#!/bin/sh\necho mytool ran\n", 0o755)
	}},
	"02_exit_before_streams_close": {
		rewrite: instead(0, "sleep 1.2", waitFor("go")),
		before:  at(3, func(r *replay) { r.makeFile("go", "", 0o644) }),
	},
	"03_read_params": {
		rewrite: instead(0, "sleep 0.08", waitFor("go$i")),
		before: at(1, func(r *replay) {
			for i := 1; i <= 5; i++ {
				r.conns["c1"].Until("a chunk comes", func(frames []harness.RPCFrame) bool { return amountOf(frames, "p", "process/output") >= 7*i })
				r.makeFile(fmt.Sprintf("go%d", i), "", 0o644)
			}
		}),
	},
	"03_read_wait": {
		rewrite: func(index int, text string) string {
			text = strings.Replace(text, "sleep 1.5; echo hi; sleep 1.5", waitFor("go3")+"; echo hi; "+waitFor("go5"), 1)
			text = strings.Replace(text, "; exit 3\"", "; ("+waitFor("held")+") & exit 3\"", 1)
			return strings.Replace(text, "(sleep 1)", "("+waitFor("go11")+")", 1)
		},
		before: at(6, func(r *replay) { r.makeFile("held", "", 0o644) }), // so that the exit is reported before the close
		after:  func(r *replay, index int, _ string) { r.makeFile(fmt.Sprintf("go%d", index), "", 0o644) },
	},
	"03_exited_retention_time": {
		before: at(1, func(r *replay) {
			c := r.conns["c1"]
			c.LastID = 1000
			harness.Eventually(c, "the process is forgotten", func() bool {
				return c.Call("process/read", harness.RPCParams{"processId": "p"}).Error != nil
			})
		}),
		beforeClose: func(r *replay) {
			r.conns["c1"].Until("the process has closed twice", func(frames []harness.RPCFrame) bool { return amountOf(frames, "p", "process/closed") == 2 })
		},
	},
	"04_write": {
		rewrite: instead(22, "aGk=", "aGl="),
		before: at(28, func(r *replay) { // when what was written before has failed
			c := r.conns["c1"]
			c.LastID = 1000
			harness.Eventually(c, "writes to a closed stdin fail", func() bool {
				return string(c.Call("process/write", harness.WriteOf("closer", "x")).Result) == `{"status":"stdinClosed"}`
			})
		}),
	},
	"04_write_id": {outputDiffers: true, beforeClose: func(r *replay) { // everything written was echoed
		r.conns["c1"].Until("cat says all", func(frames []harness.RPCFrame) bool { return amountOf(frames, "cat", "process/output") >= 10 })
	}},
	"05_terminate": {before: func(r *replay, index int, _ string) {
		if index == 19 { // of setsid, with us, none is left
			harness.Eventually(r, "the child of bgexit is killed", func() bool { return r.killTagged("sleep 1" + r.unique + "2") })
		}
	}},
	"06_close_and_resume": {
		prepare: func(r *replay) {
			r.sessions["${SESSION2}"] = "00000000-0000-0000-0000-000000000000"
			r.makeFile("go0", "", 0o644)
		},
		rewrite: instead(2, "echo tick$i; i=$((i+1)); sleep 0.5 & sleep 0.5", waitFor("go$i")+"; echo tick$i; i=$((i+1))"),
		before: func(r *replay, index int, _ string) {
			switch index {
			case 8:
				r.makeFile("go1", "", 0o644)
			case 9:
				for i := 2; i <= 4; i++ {
					r.makeFile(fmt.Sprintf("go%d", i), "", 0o644)
					r.awaitSeq("${SESSION1}", "p", uint64(i+1))
				}
			case 11:
				r.makeFile("go5", "", 0o644)
				r.conns["d"].Until("a live chunk comes", func(frames []harness.RPCFrame) bool { return amountOf(frames, "p", "process/output") >= 6 })
				if r.version == newVersion { // the older one was recorded half a second shorter
					r.makeFile("go6", "", 0o644)
				}
			}
		},
	},
	"06_resume_attached": {
		silent:  map[string]string{"${SESSION1}": "a", "${SESSION2}": "y"},
		rewrite: instead(5, "sleep 1", waitFor("go")),
		before: at(6, func(r *replay) {
			r.makeFile("go", "", 0o644)
			r.awaitSeq("${SESSION2}", "q", 4)
		}),
	},
	"11_http_request": {
		prepare: (*replay).prepareWeb,
		rewrite: instead(37, `"timeoutMs":800`, `"timeoutMs":3000`), // the head has to come within it
		before:  at(42, func(r *replay) { r.awaitBodies() }),
	},
	"06_resume_timing": {silent: map[string]string{"${SESSION1}": "a2", "${SESSION2}": "a6", "${SESSION3}": "a9",
		"${SESSION4}": "a9.7", "${SESSION5}": "a10.5", "${SESSION6}": "a12"}},
}

// tunes change the configuration of the server for a scenario.
var tunes = map[string]func(*config.Config){
	"03_exited_retention_time": func(cfg *config.Config) { cfg.ClosedRetention = 1e8 },
}

// at runs a function before a message.
func at(index int, do func(r *replay)) func(*replay, int, string) {
	return func(r *replay, i int, _ string) {
		if i == index {
			do(r)
		}
	}
}

func (r *replay) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *replay) makeFile(name, content string, mode fs.FileMode) {
	r.Helper()
	r.must(os.WriteFile(r.path(name), []byte(content), 0o600))
	r.must(os.Chmod(r.path(name), mode))
}

func (r *replay) makeDir(name string) {
	r.Helper()
	r.must(os.MkdirAll(r.path(name), 0o755))
}

func (r *replay) makeLink(target, name string) {
	r.Helper()
	r.must(os.Symlink(target, r.path(name)))
}

func (r *replay) makeFIFO(name string) {
	r.Helper()
	r.must(unix.Mkfifo(r.path(name), 0o644))
}

// makeRemovable restores the permission to remove the content of a directory.
func makeRemovable(dir string) {
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			err = os.Chmod(path, 0o700)
		}
		return err
	})
}

// makePrograms creates files that cannot be executed.
func (r *replay) makePrograms() {
	r.Helper()
	r.makeFile("noexec", "#!/bin/sh\necho hi\n", 0o644)
	r.makeFile("garbage", "garbage", 0o755)
	r.makeFile("badint", "#!/no/such/interp\n", 0o755)
}

// makeRunnable turns one of them into a program.
func (r *replay) makeRunnable(_ int, text string) {
	if strings.Contains(text, `"prog-script"`) {
		r.must(os.Chmod(r.path("noexec"), 0o755))
	}
}

// killTagged kills the processes with the unique command line of this replay, and reports
// whether there were any.
func (r *replay) killTagged(commandLine string) (killed bool) {
	r.Helper()
	want := strings.ReplaceAll(commandLine, " ", "\x00") + "\x00"
	for _, someone := range harness.ListProcesses() {
		line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(someone.Pid), "cmdline"))
		if err == nil && string(line) == want {
			killed = unix.Kill(someone.Pid, unix.SIGKILL) == nil || killed
		}
	}
	return killed
}

// awaitSeq waits until a process has an event with the number, according to the core.
func (r *replay) awaitSeq(session, process string, seq uint64) {
	r.Helper()
	processes := execwirev1.NewProcessServiceClient(r.core)
	harness.Eventually(r, fmt.Sprintf("%s has said number %d", process, seq), func() bool {
		told, err := processes.GetProcess(harness.Context(r), &execwirev1.GetProcessRequest{SessionId: r.sessions[session], ProcessId: process})
		r.must(err)
		return told.GetProcess().GetLastSeq() >= seq
	})
}
