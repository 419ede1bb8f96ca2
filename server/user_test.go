package server_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/osuser"
)

// asUser makes a start one of a user, with the policy core for its environment.
func asUser(req *execwirev1.StartProcessRequest, user string) *execwirev1.StartProcessRequest {
	if os.Geteuid() != 0 {
		panic("run the tests as root: they start processes of another user")
	}
	req.User = user
	direct := req.GetCommand().GetDirect()
	direct.WorkingDirectory, direct.Env, direct.EnvironmentPolicy = "", nil, &execwirev1.EnvironmentPolicy{}
	return req
}

func TestStart_User_HasItsEnvironmentAndDirectory(t *testing.T) {
	f := newFixture(t)
	for user, want := range map[string]string{
		"nobody": "65534 65534 65534\nDIR HOME=HOME LOGNAME=nobody PATH=/usr/local/bin:/usr/bin:/bin PWD=DIR SHELL=SHELL USER=nobody ",
		"4321":   "4321 4321 4321\n/ HOME=/ PATH=/usr/local/bin:/usr/bin:/bin PWD=/ SHELL=/bin/sh ",
		"4321:0": "4321 0 0\n/ HOME=/ PATH=/usr/local/bin:/usr/bin:/bin PWD=/ SHELL=/bin/sh ",
		"bin":    "2 2 2\nDIR HOME=HOME LOGNAME=bin PATH=/usr/local/bin:/usr/bin:/bin PWD=DIR SHELL=SHELL USER=bin ",
		"root":   "0 0 0\nDIR HOME=HOME LOGNAME=root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin PWD=DIR SHELL=SHELL USER=root ",
	} {
		listed, err := osuser.Lookup(user)
		if err != nil {
			t.Fatal(err)
		}
		dir, err := filepath.EvalSymlinks(listed.Home)
		if err != nil {
			dir = "/"
		}
		want = strings.NewReplacer("=HOME", "="+listed.Home, "DIR", dir, "=SHELL", "="+listed.Shell).Replace(want)
		if started := f.start(asUser(shell(user, `echo $(id -u) $(id -g) $(id -G); pwd | tr '\n' ' '; env | grep -v ^_= | sort | tr '\n' ' '`), user)); started.GetUser() != user {
			t.Errorf("%s is %s", user, started.GetUser())
		}
		if out := f.watch(&execwirev1.WatchProcessRequest{ProcessId: user}); out.stdout() != want || out.stderr() != "" {
			t.Errorf("%s: %q, %q; want %q", user, out.stdout(), out.stderr(), want)
		}
	}
	if own := f.start(shell("own", "")); own.GetUser() != "root" {
		t.Errorf("without a user it is %s", own.GetUser())
	}
	// What is given is kept, and a relative directory begins at the user's home.
	given := asUser(shell("given", `pwd; echo $HOME $PATH $USER`), "bin")
	given.GetCommand().GetDirect().WorkingDirectory = "../usr"
	given.GetCommand().GetDirect().Env = map[string]string{"HOME": "/tmp", "PATH": "/bin"}
	f.start(given)
	if out := f.watch(&execwirev1.WatchProcessRequest{ProcessId: "given"}); out.stdout() != "/usr\n/tmp /bin bin\n" {
		t.Errorf("with variables: %q", out.stdout())
	}
}

func TestStart_User_IsPartOfTheContent(t *testing.T) {
	f := newFixture(t)
	first := f.start(asUser(command("p", "sleep", "600"), "nobody"))
	if again := f.start(asUser(command("p", "sleep", "600"), "nobody")); again.GetPid() != first.GetPid() {
		t.Errorf("the same start is another process: %v, %v", first, again)
	}
	_, err := f.processes.StartProcess(f.ctx, asUser(command("p", "sleep", "600"), "daemon"))
	expectFailure(t, err, codes.AlreadyExists, execwirev1.ErrorReason_ERROR_REASON_PROCESS_ALREADY_EXISTS)
}

func TestStart_UserInvalid_NamesTheField(t *testing.T) {
	f := newFixture(t)
	for user, want := range map[string]string{
		"no such": `user "no such" names a user that /etc/passwd does not have`, "nobody:no such": "names a group that /etc/group does not have",
		":0": "is not NAME or UID", "4294967295": "names a user", strings.Repeat("n", 257): "user is longer",
	} {
		_, err := f.processes.StartProcess(f.ctx, asUser(command("p", "true"), user))
		expectFailure(t, err, codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", user, err, want)
		}
		if err := f.ownFailure(&execwirev1.OwnProcessRequest{Message: &execwirev1.OwnProcessRequest_Start{Start: &execwirev1.RunStart{Process: asUser(command("p", "true"), user)}}}); !strings.Contains(err.Error(), "start.process."+"user") {
			t.Errorf("%q: %v", user, err)
		}
	}
}

func TestConfinedStart_User(t *testing.T) {
	eachBackend(t, func(t *testing.T, f *fixture, backend execwirev1.SandboxBackend) {
		started := f.start(confinedCall(asUser(shell("p", "id -u; grep NoNewPrivs /proc/self/status; echo x >/var/tmp/escaped-$$"), "nobody"), readOnly()))
		if started.GetSandbox().GetBackend() != backend || started.GetUser() != "nobody" {
			t.Errorf("it is confined by %v, as %s", started.GetSandbox(), started.GetUser())
		}
		if out := f.watch(&execwirev1.WatchProcessRequest{ProcessId: "p"}); out.stdout() != "65534\nNoNewPrivs:\t1\n" || out.exit.GetExitCode() == 0 {
			t.Errorf("%q, %q, %v", out.stdout(), out.stderr(), out.exit)
		}
		secret := asUser(command("q", "true"), "nobody")
		secret.GetCommand().GetDirect().WorkingDirectory = t.TempDir() // below a directory of root
		_, err := f.processes.StartProcess(f.ctx, confinedCall(secret, readOnly()))
		expectFailure(t, err, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_BAD_WORKING_DIRECTORY)
	})
}
