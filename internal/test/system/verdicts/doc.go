// Package verdicts provokes each class of database error in each operation, on real servers, and compares what the
// program does with the table of internal/faults. The package has only tests.
package verdicts
