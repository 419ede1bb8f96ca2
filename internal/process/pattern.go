package process

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
)

const (
	// MaxExpressionBytes is the longest expression of a Pattern.
	MaxExpressionBytes = 1 << 10
	// maxPatternSteps bounds what one byte of output can cost: a search cannot be interrupted.
	maxPatternSteps = 2000
)

// Pattern is a regular expression to look for in output, see Process.WaitPattern. It never changes.
type Pattern struct {
	plain *regexp.Regexp
	// behind finds, as its first group, the first match that does not begin with the text, whatever does: where the
	// text was cut off from earlier output, what holds only at a beginning does not hold.
	behind *regexp.Regexp
}

// NewPattern compiles an expression in RE2 syntax of at most MaxExpressionBytes. Kind: InvalidArgument, with the field
// regular_expression.
func NewPattern(expression string) (*Pattern, error) {
	if len(expression) > MaxExpressionBytes {
		return nil, badPattern(fmt.Errorf("is longer than %d bytes", MaxExpressionBytes))
	}
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return nil, badPattern(explainPattern(err))
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, badPattern(explainPattern(err))
	}
	if steps := len(program.Inst); steps > maxPatternSteps {
		return nil, badPattern(fmt.Errorf("is too complex: it compiles to %d steps, use at most %d", steps, maxPatternSteps))
	}
	var p Pattern
	if p.plain, err = regexp.Compile(expression); err != nil {
		return nil, badPattern(explainPattern(err))
	}
	// The parsed expression is printed anew because one may quote up to its end, which would quote the group's.
	if p.behind, err = regexp.Compile(`\A(?s:.+?)(` + parsed.String() + `)`); err != nil {
		return nil, badPattern(explainPattern(err))
	}
	return &p, nil
}

// find returns the first match in text. A cut text is not where the output began.
func (p *Pattern) find(text []byte, cut bool) (from, to int, found bool) {
	at := p.plain.FindIndex(text)
	if at != nil && at[0] == 0 && cut {
		if at = p.behind.FindSubmatchIndex(text); at != nil {
			at = at[2:]
		}
	}
	if at == nil {
		return 0, 0, false
	}
	return at[0], at[1], true
}

// explainPattern leaves out of an error of package syntax what repeats the whole expression.
func explainPattern(err error) error {
	var typed *syntax.Error
	if errors.As(err, &typed) {
		return fmt.Errorf("is not an expression in RE2 syntax: %s: %q", typed.Code, typed.Expr)
	}
	return fmt.Errorf("is not an expression in RE2 syntax: %w", err)
}

func badPattern(why error) *Error {
	return &Error{Kind: InvalidArgument, Field: "regular_expression", Err: why, verb: "wait for output"}
}
