package dashboard

import (
	"fmt"
	"strings"
)

// diffLine is a line of one text or of both.
type diffLine struct {
	Mark string // "-" only the first text has it, "+" only the second, " " both
	Text string
}

// maxDiff limits the lines that are compared, because the time grows with their product.
const maxDiff = 1000

// diff compares two texts by lines, along their longest common subsequence.
func diff(a, b string) (lines []diffLine) {
	from, to := strings.Split(a, "\n"), strings.Split(b, "\n")
	long := max(len(from), len(to)) > maxDiff
	from, to = from[:min(len(from), maxDiff)], to[:min(len(to), maxDiff)]
	common := make([][]int, len(from)+1) // common[i][j]: length of the common subsequence of from[i:] and to[j:]
	for i := range common {
		common[i] = make([]int, len(to)+1)
	}
	for i := len(from) - 1; i >= 0; i-- {
		for j := len(to) - 1; j >= 0; j-- {
			if from[i] == to[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(from) || j < len(to) {
		switch {
		case i < len(from) && j < len(to) && from[i] == to[j]:
			lines = append(lines, diffLine{" ", from[i]})
			i, j = i+1, j+1
		case j == len(to) || i < len(from) && common[i+1][j] >= common[i][j+1]:
			lines = append(lines, diffLine{"-", from[i]})
			i++
		default:
			lines = append(lines, diffLine{"+", to[j]})
			j++
		}
	}
	if long {
		lines = append(lines, diffLine{" ", fmt.Sprintf("… only the first %s lines are compared", number(maxDiff))})
	}
	return lines
}
