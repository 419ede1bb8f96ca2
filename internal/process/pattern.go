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
	// maxPatternSteps bounds the cost per byte of output, because a search cannot be interrupted.
	maxPatternSteps = 2000
)

// Pattern is a regular expression to search for in output, see Process.WaitPattern. It is
// immutable.
type Pattern struct {
	anywhere *regexp.Regexp
	// afterStart finds, as its first group, the first match that does not begin at the start of the
	// text. It is for text whose beginning was dropped: an assertion about the start must not hold
	// there.
	afterStart *regexp.Regexp
}

// NewPattern compiles an expression in RE2 syntax of at most MaxExpressionBytes. Kind:
// InvalidArgument, with the field regular_expression.
func NewPattern(expression string) (*Pattern, error) {
	if len(expression) > MaxExpressionBytes {
		return nil, patternError(fmt.Errorf("is longer than %d bytes", MaxExpressionBytes))
	}
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return nil, patternError(patternSyntaxError(err))
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, patternError(patternSyntaxError(err))
	}
	if steps := len(program.Inst); steps > maxPatternSteps {
		return nil, patternError(fmt.Errorf("is too complex: it compiles to %d steps, use at most %d", steps, maxPatternSteps))
	}
	var p Pattern
	if p.anywhere, err = regexp.Compile(expression); err != nil {
		return nil, patternError(patternSyntaxError(err))
	}
	// The parsed expression is printed anew, because an open \Q in the original would quote the
	// parenthesis.
	if p.afterStart, err = regexp.Compile(`\A(?s:.+?)(` + parsed.String() + `)`); err != nil {
		return nil, patternError(patternSyntaxError(err))
	}
	return &p, nil
}

// find returns the first match in text. If truncated, the text does not begin where the output
// began.
func (p *Pattern) find(text []byte, cut bool) (from, to int, found bool) {
	at := p.anywhere.FindIndex(text)
	if at != nil && at[0] == 0 && cut {
		if at = p.afterStart.FindSubmatchIndex(text); at != nil {
			at = at[2:]
		}
	}
	if at == nil {
		return 0, 0, false
	}
	return at[0], at[1], true
}

// patternSyntaxError omits the expression from an error of package syntax, except for the invalid
// part.
func patternSyntaxError(err error) error {
	if typed, ok := errors.AsType[*syntax.Error](err); ok {
		return fmt.Errorf("is not an expression in RE2 syntax: %s: %q", typed.Code, typed.Expr)
	}
	return fmt.Errorf("is not an expression in RE2 syntax: %w", err)
}

func patternError(why error) *Error {
	return &Error{Kind: InvalidArgument, Field: "regular_expression", Err: why, operation: "wait for output"}
}
