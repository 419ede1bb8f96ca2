package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// copyPlan is what a command line of cp asks for.
type copyPlan struct {
	sources              []copySource
	dest                 string
	fromServer, toServer bool
	// written is whether DEST is written as a directory.
	written bool
}

// copySource is one thing to copy.
type copySource struct {
	argument, path string
	// content is whether what is in the directory is meant, and not itself.
	content bool
}

// planCopies reads the arguments of cp, at least two.
func planCopies(arguments []string, flags cpFlags) (copyPlan, error) {
	var plan copyPlan
	last := len(arguments) - 1
	for i, argument := range arguments {
		name, remote := strings.CutPrefix(argument, ":")
		path := name
		if remote {
			var err error
			if path, err = remotePath(argument); err != nil {
				return plan, err
			}
		}
		base := name[strings.LastIndexByte(name, '/')+1:]
		switch {
		case i == last:
			plan.dest, plan.toServer = path, remote
			plan.written = base == "" || base == "." || base == ".."
		case i > 0 && remote != plan.fromServer:
			return plan, errors.New("the sources have to be all on the server or all here")
		default:
			plan.fromServer = remote
			source := copySource{argument: argument, path: path, content: base == "." || base == ".." || path == "/"}
			if remote && path != "/" && (base == "" || source.content) {
				source.path += "/" // which remotePath takes away, and says that no link is meant
			}
			plan.sources = append(plan.sources, source)
		}
	}
	switch {
	case !plan.fromServer && !plan.toServer:
		return plan, errors.New("neither sources nor DEST are on the server: write its paths as :PATH")
	case flags.noTargetDirectory && len(plan.sources) > 1:
		return plan, errors.New("with -T there is one source")
	}
	return plan, nil
}

// without refuses flags of a command.
func without(command *cobra.Command, why string, names ...string) error {
	for _, name := range names {
		if command.Flags().Changed(name) {
			return fmt.Errorf("--%s: %s", name, why)
		}
	}
	return nil
}

// place finds what the copy of a source is called.
func (p *copier) place(source copySource, directory bool) string {
	switch {
	case !directory || source.content:
		return p.plan.dest
	default:
		return filepath.Join(p.plan.dest, filepath.Base(source.path))
	}
}

// isDirectory is whether copies go into DEST.
func (p *copier) isDirectory(ctx context.Context) (bool, error) {
	if p.flags.noTargetDirectory {
		return false, nil
	}
	is, missing := false, false
	if p.plan.toServer {
		info, err := p.client.Stat(ctx, p.plan.dest)
		missing = errors.Is(err, fs.ErrNotExist)
		if err != nil && !missing {
			return false, err
		}
		is = info.Metadata.GetType() == execwirev1.FileType_FILE_TYPE_DIRECTORY
	} else {
		info, err := os.Stat(p.plan.dest)
		missing = errors.Is(err, fs.ErrNotExist)
		if err != nil && !missing {
			return false, err
		}
		is = err == nil && info.IsDir()
	}
	switch {
	case is:
		return true, nil
	case missing && len(p.plan.sources) == 1 && p.flags.recursive:
		return false, nil
	case missing && (p.plan.written || len(p.plan.sources) > 1):
		return false, &refusedFile{path: p.plan.dest, why: "there is no such directory", hint: p.makeIt()}
	case p.plan.written || len(p.plan.sources) > 1:
		return false, &refusedFile{path: p.plan.dest, why: "it is not a directory"}
	}
	return false, nil
}

// makeIt says how to make the directory that is DEST.
func (p *copier) makeIt() string {
	if p.plan.toServer {
		return "make it with: execwire mkdir -p " + shown(p.plan.dest)
	}
	return "make it with: mkdir -p " + shown(p.plan.dest)
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
		if err := p.copy(ctx, source, p.place(source, directory)); err != nil {
			return err
		}
	}
	p.bar.summarize(p.total)
	if p.failed {
		return &exitError{code: codeSomeFailed}
	}
	return nil
}

// copy copies one source. It fails if others cannot be copied either.
func (p *copier) copy(ctx context.Context, source copySource, dest string) error {
	err := p.transfer(ctx, source, dest)
	var some *client.TransferError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil, !errors.As(err, &some) && isFatal(err):
		return p.explain(err)
	case !errors.As(err, &some): // else each was told
		p.tell(source, dest, ".", err)
	}
	p.failed = true
	return nil
}

func (p *copier) transfer(ctx context.Context, source copySource, dest string) error {
	if p.plan.fromServer && p.plan.toServer {
		return p.copyThere(ctx, source, dest)
	}
	options := client.TransferOptions{
		Recursive: p.flags.recursive, Preserve: p.flags.preserve, NoReplace: p.flags.noClobber,
		Update: p.flags.update, Checksum: p.flags.checksum, Delete: p.flags.delete, InPlace: p.flags.inPlace,
		OnFailed: func(name string, err error) { p.tell(source, dest, name, err) },
	}
	if p.bar != nil {
		options.OnProgress = func(progress client.TransferProgress) { p.bar.show(source.argument, p.total, progress) }
	}
	move := p.client.Push
	if p.plan.fromServer {
		move = p.client.Pull
	}
	from, to := source.path, dest
	done, err := move(ctx, from, to, options)
	p.note(source, done)
	p.total.Files += done.Files
	p.total.Links += done.Links
	p.total.Bytes += done.Bytes
	p.total.Skipped += done.Skipped
	p.total.Deleted += done.Deleted
	return err
}

// copyThere has the server copy.
func (p *copier) copyThere(ctx context.Context, source copySource, dest string) error {
	from := source.path
	if !p.flags.recursive || strings.HasSuffix(from, "/") {
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
	omitted, err := p.client.Copy(ctx, from, dest, p.flags.recursive)
	p.note(source, client.Transferred{Omitted: int(omitted)})
	return err
}

// note says what a copy is not.
func (p *copier) note(source copySource, done client.Transferred) {
	if done.Omitted+done.Changed == 0 {
		return
	}
	p.bar.clear()
	if done.Omitted > 0 {
		fmt.Fprintf(p.std.err, "execwire: %s: left out %d FIFOs, sockets and devices\n", shown(source.argument), done.Omitted)
	}
	if done.Changed > 0 {
		fmt.Fprintf(p.std.err, "execwire: %s: %d files were changed while they were copied\n", shown(source.argument), done.Changed)
	}
}

// tell says that something was not copied.
func (p *copier) tell(source copySource, dest, name string, err error) {
	p.bar.clear()
	explained := p.explain(err)
	var file *fs.PathError
	var link *os.LinkError
	at := filepath.Join(source.argument, name)
	if p.plan.fromServer {
		at += " to " + filepath.Join(dest, name)
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

// copyHints say what to do about what cp fails with.
var copyHints = map[execwirev1.ErrorReason]string{
	execwirev1.ErrorReason_ERROR_REASON_IS_A_DIRECTORY: "copy directories with -r",
}

func (p *copier) explain(err error) *exitError {
	explained := explainFile(err, copyHints)
	var kept *client.InterruptedError
	if errors.As(err, &kept) {
		explained.hint = "the same command goes on from the " + byteCount(kept.Size) + " that were kept"
	}
	return explained
}
