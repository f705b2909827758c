package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// sample is the state of a run at one moment.
type sample struct {
	at       time.Duration // since the first worker was started
	finished int64         // deliveries
	kills    int
}

const (
	chartWidth, chartHeight = 760, 240
	plotLeft, plotTop       = 56, 44
	plotRight, plotBottom   = chartWidth - 12, chartHeight - 34
	plotWidth, plotHeight   = plotRight - plotLeft, plotBottom - plotTop

	barTime = 500 * time.Millisecond

	chartStyle = `text{font:12px sans-serif;fill:#444}.title{font-weight:bold;font-size:14px;fill:#111}.bar{fill:#3b5bdb}` +
		`.kill{stroke:#c92a2a;stroke-dasharray:4 3}.axis{stroke:#999}`
)

// writeChart draws the deliveries per second of a run, and its kills, as SVG.
func writeChart(path, title string, samples []sample) error {
	bars, kills := bars(samples)
	if len(bars) < 2 {
		return fmt.Errorf("-chart %s: the run was too short", path)
	}
	highest := max(slices.Max(bars), 1)
	var svg strings.Builder
	text := func(x, y float64, attributes, text string) {
		fmt.Fprintf(&svg, `<text x="%.1f" y="%.1f" %s>%s</text>`, x, y, attributes, text)
	}
	line := func(class string, x1, y1, x2, y2 float64) {
		fmt.Fprintf(&svg, `<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, class, x1, y1, x2, y2)
	}
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" role="img" aria-label="%[3]s"><style>%[4]s</style><rect width="%[1]d" height="%[2]d" fill="#fff"/>`,
		chartWidth, chartHeight, title, chartStyle)
	text(plotLeft, 20, `class="title"`, title)
	text(plotLeft-6, plotTop+10, `text-anchor="end"`, thousands(int64(highest)))
	text(plotLeft-6, plotBottom, `text-anchor="end"`, "0")
	width := float64(plotWidth) / float64(len(bars))
	for i, b := range bars {
		h := b / highest * plotHeight
		fmt.Fprintf(&svg, `<rect class="bar" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, plotLeft+float64(i)*width,
			plotBottom-h, max(width-1, .5), h)
	}
	length := samples[len(samples)-1].at
	x := func(at time.Duration) float64 { return plotLeft + float64(at)/float64(length)*plotWidth }
	for _, at := range kills {
		line("kill", x(at), plotTop-8, x(at), plotBottom)
	}
	line("axis", plotLeft, plotBottom, plotRight, plotBottom)
	text(plotLeft, plotBottom+16, "", "0 s")
	text(plotRight, plotBottom+16, `text-anchor="end"`, fmt.Sprintf("%.0f s", length.Seconds()))
	text(plotLeft, chartHeight-4, "", "deliveries handled per second; each dashed line is the SIGKILL of a worker")
	svg.WriteString("</svg>\n")
	return os.WriteFile(path, []byte(svg.String()), 0o644)
}

// bars returns the deliveries per second in each step, and when workers were killed.
func bars(samples []sample) (bars []float64, kills []time.Duration) {
	last := sample{}
	from := sample{}
	for _, s := range samples {
		for range s.kills - last.kills {
			kills = append(kills, s.at)
		}
		if s.at-from.at >= barTime {
			bars = append(bars, float64(s.finished-from.finished)/(s.at-from.at).Seconds())
			from = s
		}
		last = s
	}
	return bars, kills
}
