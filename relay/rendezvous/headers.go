package rendezvous

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Headers with which an executor describes itself when it registers, and a
// harness announces that it retransmits. All are optional.
const (
	headerInstance  = "Execwire-Instance"
	headerName      = "Execwire-Name"
	headerVersion   = "Execwire-Version"
	headerLabels    = "Execwire-Labels"
	headerStreams   = "Execwire-Streams"
	headerResumable = "Execwire-Resumable"
)

// Limits on what an executor says about itself, in bytes, and on the number of
// labels.
const (
	maxInstance = 64
	maxName     = 256
	maxVersion  = 64
	maxLabels   = 64
	maxLabel    = 4 << 10 // of all together
)

// parseRegistration reads an executor's description of itself.
func parseRegistration(header http.Header) (reg registration, err error) {
	for _, field := range []struct {
		name  string
		most  int
		value *string
	}{{headerInstance, maxInstance, &reg.instance}, {headerVersion, maxVersion, &reg.version}, {headerName, maxName, &reg.name}} {
		if *field.value, err = url.PathUnescape(header.Get(field.name)); err != nil {
			return registration{}, badHeader(field.name, "is not percent-encoded")
		}
		if problem := textProblem(*field.value, field.most); problem != "" {
			return registration{}, badHeader(field.name, problem)
		}
	}
	if text := header.Get(headerStreams); text != "" {
		if reg.streams, err = strconv.Atoi(text); err != nil || reg.streams <= 0 {
			return registration{}, badHeader(headerStreams, "is not a positive number")
		}
	}
	reg.labels, err = parseLabels(header.Get(headerLabels))
	return reg, err
}

// parseLabels parses a comma-separated list of k=v, each percent-encoded.
func parseLabels(text string) (map[string]string, error) {
	if text == "" {
		return nil, nil
	}
	labels, bytes := make(map[string]string), 0
	for pair := range strings.SplitSeq(text, ",") {
		escapedKey, escapedValue, found := strings.Cut(strings.TrimSpace(pair), "=")
		key, err := url.PathUnescape(escapedKey)
		value, err2 := url.PathUnescape(escapedValue)
		bytes += len(key) + len(value)
		_, twice := labels[key]
		switch {
		case !found || key == "" || err != nil || err2 != nil:
			return nil, badHeader(headerLabels, "is not a list of key=value, percent-encoded, separated by commas")
		case twice:
			return nil, badHeader(headerLabels, "has a duplicate key")
		case len(labels) >= maxLabels || bytes > maxLabel:
			return nil, badHeader(headerLabels, "has more than 64 labels, or more than 4096 bytes of them")
		case textProblem(key, maxLabel) != "" || textProblem(value, maxLabel) != "":
			return nil, badHeader(headerLabels, "has characters that cannot be printed")
		}
		labels[key] = value
	}
	return labels, nil
}

func textProblem(text string, limit int) string {
	switch {
	case len(text) > limit:
		return "is too long"
	case !utf8.ValidString(text), strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsGraphic(c) }):
		return "has characters that cannot be printed"
	}
	return ""
}

func badHeader(name, problem string) error {
	return newRefusal(http.StatusBadRequest, codeInvalidHeader, "the header %s %s", name, problem)
}

// isResumable reports whether a harness announces that it retransmits.
func isResumable(header http.Header) bool { return header.Get(headerResumable) == "1" }
