package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/daemon"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/internal/syslimit"
)

// runLocalChecks runs the checks of a server inside this program.
func runLocalChecks(ctx context.Context, file string) ([]check, error) {
	cfg, err := config.Load(file, os.Environ())
	if err != nil {
		return nil, err
	}
	configured := cfg
	cfg.Principals, cfg.AuditFile = "", "" // no other client can reach it
	options := daemon.Options{Version: buildVersion(), Logger: slog.New(slog.DiscardHandler)}
	d, err := daemon.New(cfg, options)
	var unmet *config.Error
	hasUnmet := errors.As(err, &unmet) && unmet.Setting == "require_sandbox"
	if hasUnmet {
		cfg.RequiredSandbox, cfg.SandboxWritableRoots, cfg.SandboxNetwork = config.SandboxOff, nil, "off"
		d, err = daemon.New(cfg, options)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to start a server in this program: %w", err)
	}
	defer func() { _ = d.Close() }()
	environment, err := client.New(d.Conn()).Describe(ctx)
	if err != nil {
		return nil, explain(err, nil)
	}
	here := machine{root: "/"}
	checks := checksOf(environment, cfg.Guardian != "off", here)
	if hasUnmet {
		i := slices.IndexFunc(checks, func(c check) bool { return c.Check == checkRequired })
		checks[i] = check{Check: checkRequired, Detail: unmet.Problem, Fix: "a server with these settings does not start: mend a sandbox, or require less"}
	}
	return slices.Concat(checks, []check{here.descriptors(), here.watches(), processLimit(d.ProcessReserve()), here.memory(cfg), oomScore(cfg),
		temporaryDirectory(environment.GetTemporaryDirectory()), outputDirectory(cfg), homeDirectory(environment.GetHomeDirectory()),
		here.userName(os.Getuid()), shell(environment.GetShell())}, productionChecks(configured, time.Now())), nil
}

// productionChecks checks settings of a server that others can reach. Some are advice for
// one that they cannot reach.
func productionChecks(cfg config.Config, now time.Time) []check {
	checks := []check{plainListeners(cfg), principals(cfg), certificate(cfg, now), metricsAccess(cfg), auditLog(cfg)}
	unset := map[string]bool{checkPrincipals: cfg.Principals == "", checkMetrics: cfg.Principals == "", checkAuditLog: cfg.AuditFile == ""}
	for i, c := range checks {
		checks[i].Advice = unset[c.Check] && onlyForItsUser(cfg)
	}
	return checks
}

// onlyForItsUser reports whether no listener is for other machines or for the other users
// of this one.
func onlyForItsUser(cfg config.Config) bool {
	return cfg.RemoteURL == "" && slices.Equal(cfg.LoopbackUsers, []string{"same"}) && !slices.ContainsFunc(cfg.Listen, func(raw string) bool {
		u, err := listen.Parse(raw)
		return err != nil || u.Addr.IsValid() && !u.Addr.Addr().IsLoopback()
	})
}

// plainListeners checks that only loopback has listeners without TLS.
func plainListeners(cfg config.Config) check {
	var plain []string
	for _, raw := range cfg.Listen {
		if url, err := listen.Parse(raw); err != nil {
			return check{Check: checkListeners, Detail: err.Error(), Fix: "a server with these settings does not start: mend listen"}
		} else if url.Scheme == listen.SchemeWS && !url.Addr.Addr().IsLoopback() {
			plain = append(plain, url.String())
		}
	}
	return newCheck(checkListeners, len(plain) == 0, strings.Join(cfg.Listen, ", "),
		strings.Join(plain, ", ")+": tokens and all other data travel unencrypted",
		"use tls:// or wss://, or listen on loopback behind a proxy with TLS")
}

// principals checks that there is a table of principals.
func principals(cfg config.Config) check {
	return newCheck(checkPrincipals, cfg.Principals != "", cfg.Principals,
		"all clients are one principal that may do everything, also those of other users in loopback_users", "name a table of principals in principals_file, with what each may do")
}

// expiresSoon is how long before its end a certificate is reported.
const expiresSoon = 14 * 24 * time.Hour

// certificate checks the certificate of the listeners.
func certificate(cfg config.Config, now time.Time) check {
	if cfg.TLSCertificate == "" {
		return check{Check: checkCertificate, Works: true, Detail: "none: no listener has TLS"}
	}
	text, err := os.ReadFile(cfg.TLSCertificate)
	var leaf *x509.Certificate
	if err == nil {
		if block, _ := pem.Decode(text); block == nil {
			err = fmt.Errorf("%s has no PEM block", cfg.TLSCertificate)
		} else {
			leaf, err = x509.ParseCertificate(block.Bytes)
		}
	}
	if err != nil {
		return check{Check: checkCertificate, Detail: err.Error(), Fix: "name a file with the certificate in PEM in tls_cert"}
	}
	detail := fmt.Sprintf("%s is valid until %s", cfg.TLSCertificate, leaf.NotAfter.UTC().Format(time.RFC3339))
	return newCheck(checkCertificate, now.After(leaf.NotBefore) && now.Add(expiresSoon).Before(leaf.NotAfter), detail, detail,
		"renew it: the server reads the new one from the same file")
}

// metricsAccess checks who may read the metrics.
func metricsAccess(cfg config.Config) check {
	return newCheck(checkMetrics, cfg.Principals != "", "/metrics is for principals of the table",
		"/metrics is for every client that the listeners accept without a token",
		"name a table of principals in principals_file, with one for Prometheus: see docs/metrics.md")
}

// auditLog checks that there is an audit log, and that its directory can be written.
func auditLog(cfg config.Config) check {
	if cfg.AuditFile == "" {
		return check{Check: checkAuditLog, Detail: "nothing records who did what", Fix: "name a file in audit_file"}
	}
	directory := filepath.Dir(cfg.AuditFile)
	return newCheck(checkAuditLog, writable(directory), cfg.AuditFile, directory+" is not a writable directory",
		"a server with these settings does not start: make "+directory+", and give it to the server's user")
}

// fewDescriptors and fewWatches are the limits for warnings.
const (
	fewDescriptors = 4096
	fewWatches     = 8192
)

// descriptors checks the limit of open files.
func (m machine) descriptors() check {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return check{Check: checkDescriptors, Detail: err.Error()}
	}
	detail := fmt.Sprintf("%d at most", limit.Max)
	return newCheck(checkDescriptors, limit.Max >= fewDescriptors, detail, detail,
		"raise it with ulimit -Hn, or LimitNOFILE= of the unit: a process takes 3 and a handle of a file 1")
}

// watches checks the inotify limits.
func (m machine) watches() check {
	const setting = "fs.inotify.max_user_watches"
	directories, known := m.setting(setting)
	instances, _ := m.setting("fs.inotify.max_user_instances")
	detail := fmt.Sprintf("%d directories, by %d programs of a user", directories, instances)
	return newCheck(checkWatches, known && directories >= fewWatches && instances > 0, detail, detail,
		fmt.Sprintf("as root, sysctl %s=524288 fs.inotify.max_user_instances=128", setting))
}

// processLimit checks whether processes can use up all processes and threads of the
// server.
func processLimit(r daemon.ProcessReserve) check {
	good := ""
	switch {
	case r.Limit == 0:
		good = "only the machine limits the server's processes and threads; it creates threads in advance"
	case r.ControlGroup > 0:
		good = fmt.Sprintf("%d processes and threads, of which processes get %d by a control group", r.Limit, r.ControlGroup)
	case r.UserProcesses > 0:
		good = fmt.Sprintf("%d processes and threads, and RLIMIT_NPROC of processes is %d", r.Limit, r.UserProcesses)
	}
	return newCheck(checkProcessLimit, good != "", good,
		fmt.Sprintf("%d processes and threads, and processes can use all of them: only threads created in advance protect the server", r.Limit),
		"set reserved_processes, and give the server a cgroup v2 tree with the controller pids that it may write to, as systemd does with Delegate=yes, or run it as an ordinary user with a limit (ulimit -u)")
}

// lowMemory is the limit for a warning.
const lowMemory = 256 << 20

// memory checks the memory limit.
func (m machine) memory(cfg config.Config) check {
	most, source := syslimit.System{Root: m.root}.Memory()
	if most == 0 {
		return check{Check: checkMemoryLimit, Detail: "the memory of this machine is unknown, so nothing is derived from it",
			Fix: "mount /proc, and set GOMEMLIMIT and retained_output_bytes_total"}
	}
	kept := "a quarter of it, 2GiB at most, for output of processes"
	if cfg.RetainedTotal != 0 {
		kept = fmt.Sprintf("%v for output of processes (retained_output_bytes_total)", cfg.RetainedTotal)
	}
	detail := fmt.Sprintf("%d MiB by %s; a half for the server, %s", most>>20, source, kept)
	return newCheck(checkMemoryLimit, most >= lowMemory, detail, detail,
		"few processes can run at once: give the control group 256 MiB or more, or lower retained_output_bytes_per_process")
}

// oomScore checks which process the kernel kills when memory is exhausted.
func oomScore(cfg config.Config) check {
	return newCheck(checkOOMScore, cfg.OOMScoreAdjust > 0, fmt.Sprintf("processes have %d more than the server, up to 1000", cfg.OOMScoreAdjust),
		"the kernel may kill the server instead of the process that uses the memory", "set oom_score_adjust, to 1000 perhaps")
}

// temporaryDirectory checks the directory for temporary files.
func temporaryDirectory(path string) check {
	return newCheck(checkTemporary, writable(path), path,
		fmt.Sprintf("%s is not a writable directory, so no sandbox can be tested or used, and many programs fail", path),
		"mount a tmpfs there (emptyDir in Kubernetes, --tmpfs /tmp of docker), or set TMPDIR to a writable directory")
}

// outputDirectory checks the directory for output of processes without an owner.
func outputDirectory(cfg config.Config) check {
	kept := fmt.Sprintf("only %v of the output of a process without an owner are kept, in memory", cfg.RetainedOutput)
	if cfg.OutputFile == 0 || cfg.OutputFileTotal == 0 {
		return check{Check: checkOutput, Works: true, Detail: "not used: " + kept}
	}
	directory, err := daemon.CheckOutputDirectory(cfg)
	return newCheck(checkOutput, err == nil, directory, fmt.Sprintf("%s: %v", kept, err), "name a writable directory on a disk in output_directory")
}

// homeDirectory checks the home directory that processes get in HOME.
func homeDirectory(path string) check {
	bad := path + " is not a writable directory: git, ssh, package managers and the like cannot store anything"
	if path == "" {
		bad = "HOME is not set: git, ssh, package managers and the like may fail"
	}
	return newCheck(checkHome, writable(path), path, bad, "set HOME of the server to a writable directory, for example below /tmp")
}

// writable reports whether a path is a directory in which this process may create files.
func writable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir() && unix.Access(path, unix.W_OK|unix.X_OK) == nil
}

// userName checks whether a user has an entry in /etc/passwd.
func (m machine) userName(uid int) check {
	id := strconv.Itoa(uid)
	text, _ := os.ReadFile(filepath.Join(m.root, "etc/passwd"))
	for line := range strings.Lines(string(text)) {
		if fields := strings.Split(line, ":"); len(fields) == 7 && fields[2] == id {
			return check{Check: checkUserName, Works: true, Detail: fields[0]}
		}
	}
	return check{Check: checkUserName, Detail: "user " + id + " has no entry in /etc/passwd: ssh, git commit and others that look for its name fail",
		Fix: "add an entry, or run the server as a user that has one; USER in its environment is enough for some programs"}
}

// shell checks the shell that clients are told to use.
func shell(path string) check {
	return newCheck(checkShell, unix.Access(path, unix.X_OK) == nil, path, path+" does not exist: only programs can be run, no scripts",
		"add a shell to the image of the container")
}
