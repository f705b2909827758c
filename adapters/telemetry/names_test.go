package telemetry_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/txonce/txonce/adapters/telemetry"
	"github.com/txonce/txonce/adapters/telemetry/internal/provoke"
)

var update = flag.Bool("telemetry.update", false, "write the golden files")

// Rules, dashboards and queries of users depend on each name, unit and attribute.
func TestNames(t *testing.T) {
	r := newRig(t, provoke.Config(telemetry.Config{AckSpans: true}))
	provoke.Everything(t.Context(), r.Telemetry)
	var lines []string
	for name, m := range r.collect(t) {
		kind, sets := describe(t, m)
		keys := map[string]bool{}
		for _, set := range sets {
			for _, kv := range set.ToSlice() {
				keys[string(kv.Key)] = true
			}
		}
		lines = append(lines, fmt.Sprintf("%s | %s | %s | %s", name, m.Unit, kind, strings.Join(sorted(keys), ", ")))
	}
	spans := map[string]map[string]string{}
	for _, span := range r.spans.Ended() {
		name := fmt.Sprintf("span %s | %s", span.Name(), span.SpanKind())
		if spans[name] == nil {
			spans[name] = map[string]string{}
		}
		maps.Copy(spans[name], attributes(span))
	}
	for name, attrs := range spans {
		lines = append(lines, name+" | "+strings.Join(sorted(attrs), ", "))
	}
	slices.Sort(lines)
	golden(t, "testdata/names.txt", strings.Join(lines, "\n")+"\n")
}

func describe(t *testing.T, m metricdata.Metrics) (kind string, sets []attribute.Set) {
	t.Helper()
	points := reflect.ValueOf(m.Data).FieldByName("DataPoints")
	for i := range points.Len() {
		sets = append(sets, points.Index(i).FieldByName("Attributes").Interface().(attribute.Set))
	}
	switch m.Data.(type) {
	case metricdata.Sum[int64]:
		return "counter", sets
	case metricdata.Gauge[int64], metricdata.Gauge[float64]:
		return "gauge", sets
	case metricdata.Histogram[float64]:
		return "histogram", sets
	}
	t.Fatalf("%s: %T", m.Name, m.Data)
	return "", nil
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; -telemetry.update writes it):\n%s", path, diff)
	}
}
