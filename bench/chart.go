package main

import (
	"fmt"
	"image/color"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	_ "gonum.org/v1/plot/vg/vgsvg" // writes .svg
)

// chart draws a table: a group of bars for each way, and a bar for each column, with its quartiles.
type chart struct {
	table, title, axis string
	ways               []string // nil: those with a base
}

func (c chart) file() string { return "performance-" + c.table + ".svg" }

var charts = []chart{
	{"singles", "One message in one transaction", "x a bare transaction", []string{"by hand", "least", "Process"}},
	{"batches", "A hundred messages in one transaction", "x the claim by hand, one message per transaction", nil},
	{"kafka", "From Kafka to PostgreSQL", "x a consumer group by hand", nil},
	{"transactions", "A transaction with a message", "x a transaction without", nil},
	{"growth", "Claims beside more rows", "x claims beside the fewest rows", nil},
}

var colors = []color.Color{
	color.RGBA{0x1b, 0x4f, 0x72, 0xff},
	color.RGBA{0x5d, 0xad, 0xe2, 0xff},
	color.RGBA{0x93, 0x5b, 0x0f, 0xff},
	color.RGBA{0xf0, 0xb2, 0x6b, 0xff},
}

// writeCharts draws the tables that this run has measured.
func (r *report) writeCharts(dir string) error {
	for _, c := range charts {
		t := r.find(c.table)
		if t == nil {
			continue
		}
		rows := c.rows(t)
		if len(rows) == 0 {
			continue
		}
		p, err := c.plot(t, rows, r.Machine)
		if err != nil {
			return fmt.Errorf("chart of %s: %w", c.table, err)
		}
		if err := p.Save(vg.Length(max(18, 3+5*len(rows)))*vg.Centimeter, 11*vg.Centimeter,
			filepath.Join(dir, c.file())); err != nil {
			return err
		}
	}
	return nil
}

func (c chart) rows(t *table) (rows []*row) {
	for _, row := range t.Rows {
		if slices.Contains(c.ways, row.Way) || c.ways == nil && row.Base != "" {
			rows = append(rows, row)
		}
	}
	return rows
}

func (c chart) plot(t *table, rows []*row, m machine) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("%s (%s, %d cores)", c.title, m.Date, m.Cores)
	p.Y.Label.Text = c.axis
	p.Y.Min = 0
	p.Legend.Top = true
	width := vg.Points(60) / vg.Length(len(t.Columns))
	for i, column := range t.Columns {
		offset := width * (vg.Length(i) - vg.Length(len(t.Columns)-1)/2)
		bars, quartiles := plotter.Values{}, spread{offset: offset}
		for _, row := range rows {
			s := summary{}
			if cell := row.Cells[column]; cell != nil && cell.Ratio != nil {
				s = *cell.Ratio
			}
			bars = append(bars, s.Median)
			quartiles.of = append(quartiles.of, s)
			p.Y.Max = max(p.Y.Max, s.High*1.25)
		}
		chart, err := plotter.NewBarChart(bars, width)
		if err != nil {
			return nil, err
		}
		chart.Color, chart.Offset, chart.LineStyle.Width = colors[i%len(colors)], offset, 0
		p.Add(chart, quartiles)
		p.Legend.Add(column, chart)
	}
	var names []string
	for _, row := range rows {
		names = append(names, row.Way)
	}
	p.NominalX(names...)
	p.X.Min, p.X.Max = -.5, float64(len(rows))-.5
	return p, nil
}

// spread draws quartiles over bars.
type spread struct {
	offset vg.Length
	of     []summary
}

// Plot implements plot.Plotter.
func (s spread) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for i, sum := range s.of {
		at := x(float64(i)) + s.offset
		c.StrokeLine2(draw.LineStyle{Color: color.Black, Width: vg.Points(1)}, at, y(sum.Low), at, y(sum.High))
	}
}
