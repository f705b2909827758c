// Command generate writes the files of package monitoring. go generate runs it.
package main

import (
	"log"
	"os"
)

// files returns the content of each file.
func files() map[string]string {
	return map[string]string{
		"rules.yml":      rulesYAML(records, alerts),
		"rules_test.yml": testsYAML(alerts, unitTests()),
		"dashboard.json": dashboardJSON(),
	}
}

func main() {
	for name, content := range files() {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}
