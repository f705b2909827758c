package dashboard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	requestTimeout  = 30 * time.Second // to read a request
	shutdownTimeout = 10 * time.Second
)

// Serve answers HTTP requests on l until ctx ends, and closes l and d. It returns nil after ctx has ended. There is no
// TLS: listen on a loopback address, or put a proxy in front.
func Serve(ctx context.Context, l net.Listener, d *Dashboard) error {
	s := &http.Server{
		Handler: d, ReadTimeout: requestTimeout, WriteTimeout: actTimeout + requestTimeout,
		IdleTimeout: 2 * time.Minute,
		ErrorLog:    slog.NewLogLogger(d.cfg.Logger.Handler(), slog.LevelWarn),
	}
	s.RegisterOnShutdown(d.Close)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	select {
	case err := <-served:
		d.Close()
		return fmt.Errorf("dashboard: serve: %w", err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := s.Shutdown(stop); err != nil {
		return errors.Join(fmt.Errorf("dashboard: shut down: %w", err), s.Close())
	}
	return nil
}
