// Package similar finds the name that was probably meant by another.
package similar

import "strings"

// Nearest returns the most similar of names, and its edit distance, or "" if none is
// similar. A similar name has at most a third of the letters of name changed, or one is
// the first words of the other. prefix is the number of letters of name that every name
// begins with, and which do not count. Capitals, - and _ do not matter.
func Nearest(name string, prefix int, names []string) (nearest string, slips int) {
	typed := normal(name)
	for _, other := range names {
		known := normal(other)
		distance := distance(typed, known)
		isLike := distance <= (len(name)-prefix)/3 || strings.HasPrefix(typed, known+"_") || strings.HasPrefix(known, typed+"_")
		if isLike && (nearest == "" || distance < slips) {
			nearest, slips = other, distance
		}
	}
	return nearest, slips
}

func normal(name string) string { return strings.ReplaceAll(strings.ToLower(name), "-", "_") }

// distance is the number of letters to replace, insert, remove or exchange with the next.
func distance(a, b string) int {
	var before []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			replaced := row[j]
			if a[i] != b[j] {
				replaced++
			}
			next[j+1] = min(replaced, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
