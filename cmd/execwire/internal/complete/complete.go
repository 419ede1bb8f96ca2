// Package complete completes words of command lines from what a server knows. A completion
// that fails or takes too long has no words, and writes nothing.
package complete

import (
	"context"
	"iter"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Timeout is how long a completion may take, with the connection. Tests change it.
var Timeout = 2 * time.Second

// mostWords is the number of words of a completion; further ones are left out.
const mostWords = 1000

// Server connects to the server of a command line whose flags are parsed.
type Server struct {
	// Connect returns a client, which is then closed.
	Connect func(ctx context.Context, command *cobra.Command) (*client.Client, error)
	// Directory returns an argument, of which a leading colon is no part, as the absolute path
	// of a directory of the server.
	Directory func(ctx context.Context, c *client.Client, argument string) (string, error)
}

// Argument makes a completion of the arguments of a command.
type Argument func(Server) cobra.CompletionFunc

// Nothing is the completion of arguments that are neither known nor files.
func Nothing(Server) cobra.CompletionFunc { return cobra.NoFileCompletions }

// Processes completes ids of processes that have not closed, in the session of --session.
func Processes(s Server) cobra.CompletionFunc { return s.processes(false) }

// Records completes ids of processes, those of closed processes included.
func Records(s Server) cobra.CompletionFunc { return s.processes(true) }

func (s Server) processes(all bool) cobra.CompletionFunc {
	return s.words(func(ctx context.Context, c *client.Client, command *cobra.Command, arguments []string) iter.Seq2[string, error] {
		session := ""
		if flag := command.Flags().Lookup("session"); flag != nil {
			session = flag.Value.String()
		}
		return func(yield func(string, error) bool) {
			for p, err := range c.ListProcesses(ctx, session) {
				isClosed := p.GetState() == execwirev1.ProcessState_PROCESS_STATE_CLOSED
				if err == nil && (isClosed && !all || slices.Contains(arguments, p.GetProcessId())) {
					continue
				}
				if !yield(described(p.GetProcessId(), strings.Join(p.GetArgv(), " ")), err) {
					return
				}
			}
		}
	})
}

// Process is [Processes] for a single argument.
func Process(s Server) cobra.CompletionFunc { return single(Processes(s)) }

// Record is [Records] for a single argument.
func Record(s Server) cobra.CompletionFunc { return single(Records(s)) }

// Session completes the id of a leased session.
func Session(s Server) cobra.CompletionFunc { return single(Sessions(s)) }

// Sessions completes ids of leased sessions.
func Sessions(s Server) cobra.CompletionFunc {
	return s.words(func(ctx context.Context, c *client.Client, _ *cobra.Command, _ []string) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			for session, err := range c.ListSessions(ctx) {
				if !yield(described(session.GetSessionId(), session.GetPrincipal()), err) {
					return
				}
			}
		}
	})
}

// Executors completes the ids of executors, which list lists for the flags of a command.
func Executors(list func(ctx context.Context) ([]client.Executor, error)) cobra.CompletionFunc {
	return func(command *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(command.Context(), Timeout)
		defer cancel()
		executors, err := list(ctx)
		var words []string
		for _, e := range executors {
			if err == nil && strings.HasPrefix(e.ID, typed) {
				words = appendWord(words, described(e.ID, e.Name))
			}
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// Paths completes paths of the server, with or without a colon.
func Paths(s Server) cobra.CompletionFunc { return s.path }

// CopyPaths completes paths of the server that begin with a colon; others are files of this
// machine, which the shell completes.
func CopyPaths(s Server) cobra.CompletionFunc {
	return func(command *cobra.Command, arguments []string, typed string) ([]string, cobra.ShellCompDirective) {
		if !strings.HasPrefix(typed, ":") {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return s.path(command, arguments, typed)
	}
}

func (s Server) path(command *cobra.Command, _ []string, typed string) (words []string, directive cobra.ShellCompDirective) {
	directive = cobra.ShellCompDirectiveNoFileComp
	base := typed[strings.LastIndexAny(typed, ":/")+1:]
	if strings.LastIndex(typed, ":") > 0 { // a colon in a name
		base = path.Base(typed)
	}
	parent := strings.TrimSuffix(typed, base)
	ctx, cancel := context.WithTimeout(command.Context(), Timeout)
	defer cancel()
	c, err := s.Connect(ctx, command)
	if err != nil {
		return nil, directive
	}
	defer func() { _ = c.Close() }()
	var entries []client.DirEntry
	directory, err := s.Directory(ctx, c, parent)
	if err == nil {
		entries, err = c.ReadDir(ctx, directory)
	}
	if err != nil {
		return nil, directive
	}
	slices.SortFunc(entries, func(a, b client.DirEntry) int { return strings.Compare(a.Name, b.Name) })
	for _, e := range entries {
		if !strings.HasPrefix(e.Name, base) || e.Name[0] == '.' && base == "" {
			continue
		}
		word := parent + e.Name
		if e.Type == execwirev1.FileType_FILE_TYPE_DIRECTORY || e.TargetType == execwirev1.FileType_FILE_TYPE_DIRECTORY {
			word += "/"
		}
		words = appendWord(words, word)
	}
	// The next thing to type after a directory is what is in it.
	if len(words) != 1 || strings.HasSuffix(words[0], "/") {
		directive |= cobra.ShellCompDirectiveNoSpace
	}
	return words, directive
}

// words makes a completion of what list lists.
func (s Server) words(list func(context.Context, *client.Client, *cobra.Command, []string) iter.Seq2[string, error]) cobra.CompletionFunc {
	return func(command *cobra.Command, arguments []string, typed string) (words []string, directive cobra.ShellCompDirective) {
		directive = cobra.ShellCompDirectiveNoFileComp
		ctx, cancel := context.WithTimeout(command.Context(), Timeout)
		defer cancel()
		c, err := s.Connect(ctx, command)
		if err != nil {
			return nil, directive
		}
		defer func() { _ = c.Close() }()
		for word, err := range list(ctx, c, command, arguments) {
			if err != nil {
				return nil, directive
			}
			if strings.HasPrefix(word, typed) {
				words = appendWord(words, word)
			}
		}
		return words, directive
	}
}

// single completes only the first argument.
func single(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(command *cobra.Command, arguments []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(arguments) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(command, arguments, typed)
	}
}

// described is a word with a description for people, which may have any characters.
func described(word, description string) string {
	description = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, description)
	if description == "" {
		return word
	}
	return word + "\t" + description
}

// appendWord appends a word that a shell can insert: a name with a line break or another
// control character is left out.
func appendWord(words []string, word string) []string {
	name, _, _ := strings.Cut(word, "\t")
	isPlain := utf8.ValidString(name) && !strings.ContainsFunc(word[:len(name)], func(r rune) bool { return !unicode.IsPrint(r) })
	if !isPlain || len(words) >= mostWords {
		return words
	}
	return append(words, word)
}
