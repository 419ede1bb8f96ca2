package server_test

import (
	"errors"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/testrace"
)

// outsideStates create different states of a path that the required sandbox does not grant.
var outsideStates = map[string]func(dir, path string) error{
	"missing directory": func(string, string) error { return nil },
	"missing":           func(dir, _ string) error { return os.Mkdir(dir, 0o755) },
	"file":              func(dir, path string) error { return errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(path, nil, 0o644)) },
	"program": func(dir, path string) error {
		return errors.Join(os.Mkdir(dir, 0o755), os.Symlink("/usr/bin/true", path))
	},
	"directory":       func(_, path string) error { return os.MkdirAll(path, 0o755) },
	"file above":      func(dir, _ string) error { return os.WriteFile(dir, nil, 0o644) },
	"FIFO":            func(dir, path string) error { return errors.Join(os.Mkdir(dir, 0o755), unix.Mkfifo(path, 0o644)) },
	"link to nowhere": func(dir, path string) error { return errors.Join(os.Mkdir(dir, 0o755), os.Symlink("/nowhere", path)) },
	"link cycle":      func(dir, path string) error { return errors.Join(os.Mkdir(dir, 0o755), os.Symlink(path, path)) },
	"no permission": func(dir, path string) error {
		return errors.Join(os.MkdirAll(path, 0), os.Chmod(dir, 0), os.Chown(dir, 65534, 65534))
	},
	"protected link": func(_, path string) error {
		return errors.Join(os.MkdirAll(path, 0o755), os.Symlink("/", path+"/.git"))
	},
	"many files": func(_, path string) error {
		err := os.MkdirAll(path, 0o755)
		for i := range 1100 { // more paths than a policy may expand to
			err = errors.Join(err, os.WriteFile(path+"/"+strconv.Itoa(i), nil, 0o644))
		}
		return err
	},
}

// The answers to requests about a path that the required sandbox does not grant do not
// depend on what is at that path.
func TestRequiredSandbox_Errors_RevealNothingOutside(t *testing.T) {
	testrace.Slow(t)
	dir := realDirectory(t)
	work, outside := dir+"/work", dir+"/outside"
	path := outside + "/place"
	if err := errors.Join(os.Mkdir(work, 0o755), os.Mkdir(work+"/repository", 0o755),
		os.Symlink(outside, work+"/way"), os.Symlink(path+"/../../work/run", work+"/around"),
		os.WriteFile(work+"/run", []byte("#!/bin/sh\n"), 0o755), os.WriteFile(work+"/repository/.git", []byte("gitdir: "+path+"/x\n"), 0o644),
	); err != nil {
		t.Fatal(err)
	}
	required := policyOf("/usr", "/bin", "/lib", "/lib64", "/etc", "+"+work)
	eachBackend(t, func(t *testing.T, f *fixture, backend execwirev1.SandboxBackend) {
		started := 0
		answers := map[string]map[string][]string{} // by request and answer, the states
		for state, make := range outsideStates {
			if err := make(outside, path); err != nil {
				t.Fatal(err)
			}
			for request, answer := range aboutOutside(f, backend, work, outside, path, &started) {
				if answers[request] == nil {
					answers[request] = map[string][]string{}
				}
				answers[request][answer] = append(answers[request][answer], state)
			}
			if err := os.RemoveAll(outside); err != nil {
				t.Fatal(err)
			}
		}
		for request, of := range answers {
			if len(of) > 1 {
				t.Errorf("%s has %d answers:", request, len(of))
				for answer, states := range of {
					t.Errorf("\t%v: %s", states, answer)
				}
			}
		}
	}, func(s *settings) { s.required = required })
}

// aboutOutside makes requests about a path outside and returns the answer to each. started
// counts the processes; the count is the process id.
func aboutOutside(f *fixture, backend execwirev1.SandboxBackend, work, outside, path string, started *int) map[string]string {
	answers := map[string]string{}
	answer := func(request string, err error) {
		text := "it worked"
		if err != nil {
			text = prototext.Format(status.Convert(err).Proto())
		}
		answers[request] = text
	}
	start := func(request string, change func(*execwirev1.DirectCommand), policy *execwirev1.SandboxPolicy) {
		*started++
		id := strconv.Itoa(*started)
		command := shell(id, "true")
		change(command.GetCommand().GetDirect())
		_, err := f.processes.StartProcess(f.ctx, confinedCall(command, policy))
		answer(request, err)
		if err == nil {
			f.waitClosed(id)
		}
	}
	for name, at := range map[string]string{
		"the path": path + "/", "below it": path + "/x", "a link above it": work + "/way/place",
		"a way through it": path + "/../../work/run", "a link through it": work + "/around",
	} {
		start("execute "+name, func(c *execwirev1.DirectCommand) { c.Argv = []string{at} }, nil)
		start("work in "+name, func(c *execwirev1.DirectCommand) { c.WorkingDirectory = at }, nil)
		start("search "+name, func(c *execwirev1.DirectCommand) { c.Argv, c.Env = []string{"place"}, map[string]string{"PATH": at} }, nil)
		if backend == execwirev1.SandboxBackend_SANDBOX_BACKEND_BUBBLEWRAP { // Landlock does not hide names, sizes and times
			_, err := f.files.GetMetadata(f.ctx, &execwirev1.GetMetadataRequest{Path: at})
			answer("look at "+name, err)
			_, err = f.files.ReadDirectory(f.ctx, &execwirev1.ReadDirectoryRequest{Path: at})
			answer("list "+name, err)
			continue // policies are resolved independently of the backend
		}
		for _, policy := range []struct {
			name   string
			policy *execwirev1.SandboxPolicy
		}{
			{"read", policyOf("/", at)}, {"write", policyOf("/", "+"+at)}, {"deny", denying(at)}, {"deny what matches in", denyingGlob(at + "/*")},
			{"deny what matches below", denyingGlob(at + "/**/*")}, {"work on", workspaceAt(at)},
		} {
			start(policy.name+" "+name, func(*execwirev1.DirectCommand) {}, policy.policy)
			if at != work+"/around" {
				continue // policies of file calls are resolved in the same way
			}
			_, err := f.files.GetMetadata(f.ctx, &execwirev1.GetMetadataRequest{Path: work + "/run", Sandbox: policy.policy})
			answer("with a file, "+policy.name+" "+name, err)
		}
	}
	start("work on a repository that points to it", func(*execwirev1.DirectCommand) {}, workspaceAt(work+"/repository"))
	start("TMPDIR", func(c *execwirev1.DirectCommand) { c.Env["TMPDIR"] = path },
		managed(special(execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_ROOT, execwirev1.SandboxAccess_SANDBOX_ACCESS_READ),
			special(execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_TMPDIR, execwirev1.SandboxAccess_SANDBOX_ACCESS_WRITE)))
	return answers
}

func denying(path string) *execwirev1.SandboxPolicy {
	policy := readOnly()
	restricted := policy.GetManaged().GetFileSystem().GetRestricted()
	restricted.Entries = append(restricted.Entries, place(path, execwirev1.SandboxAccess_SANDBOX_ACCESS_NONE))
	return policy
}

func denyingGlob(pattern string) *execwirev1.SandboxPolicy {
	policy := readOnly()
	restricted := policy.GetManaged().GetFileSystem().GetRestricted()
	restricted.Entries = append(restricted.Entries, &execwirev1.SandboxEntry{
		Access: execwirev1.SandboxAccess_SANDBOX_ACCESS_NONE, Place: &execwirev1.SandboxEntry_Glob{Glob: pattern}})
	return policy
}

func workspaceAt(path string) *execwirev1.SandboxPolicy {
	policy := managed(special(execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_ROOT, execwirev1.SandboxAccess_SANDBOX_ACCESS_READ),
		special(execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_PROJECT_ROOTS, execwirev1.SandboxAccess_SANDBOX_ACCESS_WRITE))
	policy.GetManaged().WorkspaceRoots = []string{path}
	return policy
}
