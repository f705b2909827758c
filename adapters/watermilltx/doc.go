// Package watermilltx makes watermill's handlers effectively-once.
package watermilltx
