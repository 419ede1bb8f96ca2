package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// copyPlan is the parsed command line of cp.
type copyPlan struct {
	sources              []copySource
	dest                 string
	fromServer, toServer bool
	system               string // of this machine, as in runtime.GOOS
	// standard is whether the source is stdin or the destination is stdout; the other one
	// is on the server.
	standard bool
	// destIsDirectory is whether DEST ends with a slash.
	destIsDirectory bool
}

// copySource is one source.
type copySource struct {
	argument, path string
	// contentOnly is whether to copy the content of the directory, not the directory
	// itself.
	contentOnly bool
}

// planCopies parses the arguments of cp, at least two.
func planCopies(arguments []string, flags cpFlags) (copyPlan, error) {
	return planCopiesOn(runtime.GOOS, arguments, flags)
}

// planCopiesOn is planCopies on a system.
func planCopiesOn(system string, arguments []string, flags cpFlags) (copyPlan, error) {
	last := len(arguments) - 1
	plan := copyPlan{system: system, standard: arguments[last] == "-" || slices.Contains(arguments[:last], "-")}
	if plan.standard && len(arguments) > 2 {
		return plan, errors.New("- is stdin or stdout, which is for a single file: write ./- for a file of this name")
	}
	for i, argument := range arguments {
		name, remote := strings.CutPrefix(argument, ":")
		path := name
		if remote {
			path = remotePath(argument)
		}
		base, root := splitLocal(system, name)
		if remote {
			base, root = name[strings.LastIndexByte(name, '/')+1:], path == "/"
		}
		switch {
		case i == last:
			plan.dest, plan.toServer = path, remote
			plan.destIsDirectory = base == "" || base == "." || base == ".."
		case i > 0 && remote != plan.fromServer:
			return plan, errors.New("the sources must be all on the server or all local")
		default:
			plan.fromServer = remote
			source := copySource{argument: argument, path: path, contentOnly: base == "." || base == ".." || root}
			if remote && path != "/" && (base == "" || source.contentOnly) {
				source.path += "/" // remotePath removes it; it means that a link is followed
			}
			plan.sources = append(plan.sources, source)
		}
	}
	return plan, plan.check(flags)
}

// check rejects sources and a destination that do not go together.
func (p *copyPlan) check(flags cpFlags) error {
	switch {
	case !p.fromServer && !p.toServer:
		return errors.New("neither sources nor DEST are on the server: write paths on the server as :PATH")
	case p.standard && len(p.sources) > 1:
		return fmt.Errorf("the pattern stands for %d files, and stdout is for a single one", len(p.sources))
	case p.standard && p.toServer && p.destIsDirectory:
		return fmt.Errorf("DEST is the directory %q: name the file to write stdin to", p.dest)
	case p.standard:
	case p.system == windowsSystem && p.fromServer && !p.toServer && !flags.noTargetDirectory && slices.ContainsFunc(p.sources, isForeignName):
		return errors.New("a source has a name that Windows does not allow: copy it alone, and name the copy with -T")
	case flags.noTargetDirectory && len(p.sources) > 1:
		return errors.New("-T allows only one source")
	}
	return nil
}

// expandSources replaces sources on the server that are patterns by what they match.
func (p *copyPlan) expandSources(ctx context.Context, c *client.Client, base string, flags cpFlags) error {
	if !p.fromServer {
		return nil
	}
	var expanded []copySource
	for _, source := range p.sources {
		name := path.Clean(source.path)
		for _, match := range expandPath(ctx, c, base, source.argument, name) {
			expanded = append(expanded, source)
			if match != name {
				slash := source.path[len(name):]
				expanded[len(expanded)-1] = copySource{argument: ":" + match, path: match + slash, contentOnly: source.contentOnly}
			}
		}
	}
	p.sources = expanded
	return p.check(flags)
}

// isForeignName reports whether the name of a source of the server is a path on Windows.
func isForeignName(source copySource) bool { return strings.ContainsAny(source.baseName(), `\:`) }

// baseName is the name of the copy of a source of the server.
func (s copySource) baseName() string { return path.Base(s.path) }

// rejectFlags rejects flags of a command.
func rejectFlags(command *cobra.Command, why string, names ...string) error {
	for _, name := range names {
		if command.Flags().Changed(name) {
			return fmt.Errorf("--%s: %s", name, why)
		}
	}
	return nil
}

// destination returns the destination of a source.
func (p *copier) destination(source copySource, directory bool) string {
	if !directory || source.contentOnly {
		return p.plan.dest
	}
	base := source.baseName()
	if !p.plan.fromServer {
		base = filepath.Base(source.path)
	}
	if p.plan.toServer {
		return path.Join(p.plan.dest, base)
	}
	return filepath.Join(p.plan.dest, base)
}

// isDirectory reports whether copies are placed in DEST.
func (p *copier) isDirectory(ctx context.Context) (bool, error) {
	if p.flags.noTargetDirectory {
		return false, nil
	}
	is, hint := false, "make it with: mkdir -p "
	var err error
	if p.plan.toServer {
		var info client.FileInfo
		info, err = p.client.Stat(ctx, p.plan.dest)
		is, hint = isDirectory(info), "make it with: execwire mkdir -p "
	} else {
		var info fs.FileInfo
		info, err = os.Stat(p.plan.dest)
		is = err == nil && info.IsDir()
	}
	missing := errors.Is(err, fs.ErrNotExist)
	isNeeded := p.plan.destIsDirectory || len(p.plan.sources) > 1
	switch {
	case err != nil && !missing:
		return false, err
	case is || !isNeeded, missing && len(p.plan.sources) == 1 && p.flags.Recursive:
		return is, nil
	case missing:
		return false, &refusedFile{path: p.plan.dest, why: "there is no such directory", hint: hint + printable(p.plan.dest)}
	}
	return false, &refusedFile{path: p.plan.dest, why: "it is not a directory"}
}

// copier is one run of cp.
type copier struct {
	client *client.Client
	flags  cpFlags
	plan   copyPlan
	std    streams
	bar    *progressBar

	failed bool
	total  client.Transferred
}

func (p *copier) run(ctx context.Context) error {
	defer p.bar.clear()
	directory, err := p.isDirectory(ctx)
	if err != nil {
		return p.explain(err)
	}
	for _, source := range p.plan.sources {
		if err := p.copy(ctx, source, p.destination(source, directory)); err != nil {
			return err
		}
	}
	p.bar.summarize(p.total)
	if p.failed {
		return &exitError{code: codeSomeFailed}
	}
	return nil
}

// copy copies one source. It returns an error only if further copies are useless.
func (p *copier) copy(ctx context.Context, source copySource, dest string) error {
	err := p.transfer(ctx, source, dest)
	var some *client.TransferError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil, !errors.As(err, &some) && isFatal(err):
		return p.explain(err)
	case !errors.As(err, &some): // otherwise each was reported
		p.reportFailure(source, dest, ".", err)
	}
	p.failed = true
	return nil
}

func (p *copier) transfer(ctx context.Context, source copySource, dest string) error {
	if p.plan.fromServer && p.plan.toServer {
		return p.copyOnServer(ctx, source, dest)
	}
	options := p.flags.TransferOptions
	options.OnFailed = func(name string, err error) { p.reportFailure(source, dest, name, err) }
	if p.bar != nil {
		options.OnProgress = func(progress client.TransferProgress) { p.bar.show(source.argument, p.total, progress) }
	}
	move := p.client.Push
	if p.plan.fromServer {
		move = p.client.Pull
	}
	done, err := move(ctx, source.path, dest, options)
	p.warn(source, done)
	p.total.Files += done.Files
	p.total.Links += done.Links
	p.total.Bytes += done.Bytes
	p.total.Skipped += done.Skipped
	p.total.Deleted += done.Deleted
	return err
}

// copyOnServer copies within the server.
func (p *copier) copyOnServer(ctx context.Context, source copySource, dest string) error {
	from := source.path
	if !p.flags.Recursive || strings.HasSuffix(from, "/") {
		real, err := p.client.RealPath(ctx, from)
		switch {
		case client.Reason(err) == execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED:
			info, lstatErr := p.client.Lstat(ctx, from)
			if lstatErr != nil {
				return lstatErr
			}
			if info.Metadata.GetType() == execwirev1.FileType_FILE_TYPE_SYMLINK {
				return err
			}
			real = from
		case err != nil:
			return err
		}
		from = real
	}
	omitted, err := p.client.Copy(ctx, from, dest, p.flags.Recursive)
	p.warn(source, client.Transferred{Omitted: int(omitted)})
	return err
}

// warn reports what was omitted or changed.
func (p *copier) warn(source copySource, done client.Transferred) {
	if done.Omitted+done.Changed == 0 {
		return
	}
	p.bar.clear()
	if done.Omitted > 0 {
		fmt.Fprintf(p.std.err, "execwire: %s: skipped %d FIFOs, sockets and devices\n", printable(source.argument), done.Omitted)
	}
	if done.Changed > 0 {
		fmt.Fprintf(p.std.err, "execwire: %s: %d files were changed while they were copied\n", printable(source.argument), done.Changed)
	}
}

// reportFailure reports a failed copy.
func (p *copier) reportFailure(source copySource, dest, name string, err error) {
	p.bar.clear()
	explained := p.explain(err)
	var file *fs.PathError
	var link *os.LinkError
	at := filepath.Join(source.argument, name)
	switch {
	case p.plan.fromServer && p.plan.toServer:
		at = path.Join(source.argument, name) + " to " + path.Join(dest, name)
	case p.plan.fromServer:
		at = path.Join(source.argument, name) + " to " + filepath.Join(dest, name)
	}
	switch {
	case errors.As(err, &file):
		explained.err = fmt.Errorf("failed to copy %s: %w", at, file.Err)
	case errors.As(err, &link):
		explained.err = fmt.Errorf("failed to copy %s: %w", at, link.Err)
	}
	if client.Reason(err) == 0 && strings.Contains(err.Error(), "it is a directory") {
		explained.hint = copyHints[execwirev1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY]
	}
	report(p.std.err, explained)
}

// copyHints are hints for errors of cp.
var copyHints = reasonHints{
	execwirev1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY: "copy directories with -r",
}

func (p *copier) explain(err error) *exitError {
	explained := explain(err, copyHints)
	if kept, ok := errors.AsType[*client.InterruptedError](err); ok {
		explained.hint = "the same command resumes after the " + byteCount(kept.Size) + " that were received"
	}
	return explained
}
