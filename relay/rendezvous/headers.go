package rendezvous

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Headers by which executors of ours say who they are when they register, and
// harnesses of ours that they retransmit. Others do without.
const (
	headerInstance  = "Execwire-Instance"
	headerName      = "Execwire-Name"
	headerVersion   = "Execwire-Version"
	headerLabels    = "Execwire-Labels"
	headerStreams   = "Execwire-Streams"
	headerResumable = "Execwire-Resumable"
)

// What an executor may say of itself, in bytes, and how many labels.
const (
	maxInstance = 64
	maxName     = 256
	maxVersion  = 64
	maxLabels   = 64
	maxLabel    = 4 << 10 // of all together
)

// registrationOf returns what an executor says of itself.
func registrationOf(header http.Header) (made registration, err error) {
	for _, field := range []struct {
		name    string
		most    int
		escaped bool
		value   *string
	}{
		{headerInstance, maxInstance, false, &made.instance},
		{headerVersion, maxVersion, true, &made.version},
		{headerName, maxName, true, &made.name},
	} {
		text := header.Get(field.name)
		if field.escaped {
			if text, err = url.PathUnescape(text); err != nil {
				return registration{}, badHeader(field.name, "is not percent-encoded")
			}
		}
		if problem := badText(text, field.most); problem != "" {
			return registration{}, badHeader(field.name, problem)
		}
		*field.value = text
	}
	if text := header.Get(headerStreams); text != "" {
		if made.streams, err = strconv.Atoi(text); err != nil || made.streams <= 0 {
			return registration{}, badHeader(headerStreams, "is not a number from 1")
		}
	}
	made.labels, err = labelsOf(header.Get(headerLabels))
	return made, err
}

// labelsOf reads k=v, separated by commas, each percent-encoded.
func labelsOf(text string) (map[string]string, error) {
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
			return nil, badHeader(headerLabels, "has a key twice")
		case len(labels) >= maxLabels || bytes > maxLabel:
			return nil, badHeader(headerLabels, "has more than 64 labels, or more than 4096 bytes of them")
		case badText(key, maxLabel) != "" || badText(value, maxLabel) != "":
			return nil, badHeader(headerLabels, "has what cannot be printed")
		}
		labels[key] = value
	}
	return labels, nil
}

func badText(text string, most int) string {
	switch {
	case len(text) > most:
		return "is too long"
	case !utf8.ValidString(text), strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsGraphic(c) }):
		return "has what cannot be printed"
	}
	return ""
}

func badHeader(name, problem string) error {
	return refuse(http.StatusBadRequest, codeInvalidHeader, "the header %s %s", name, problem)
}

// isResumable reports whether a harness says that it retransmits.
func isResumable(header http.Header) bool { return header.Get(headerResumable) == "1" }
