package claims

import "slices"

// Consumers returns the consumers of the rows, each once: whose windows count for the horizon.
func (p *Plan) Consumers() []string {
	names := make([]string, 0, 1)
	for _, row := range p.Rows {
		if !slices.Contains(names, row.Record.Key.Consumer) {
			names = append(names, row.Record.Key.Consumer)
		}
	}
	return names
}
