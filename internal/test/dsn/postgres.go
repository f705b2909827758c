// Package dsn reads and changes the addresses of databases that drivers take, without any driver: what tests of
// adapters import decides what the adapters' users download.
package dsn

import (
	"cmp"
	"errors"
	"net"
	"net/url"
	"path"
	"strings"
)

// Postgres is where a DSN of PostgreSQL leads. The DSN is a URL or a list of keywords.
type Postgres struct {
	Host, Port, User, Database string
}

// ParsePostgres reads a DSN that names its host.
func ParsePostgres(dsn string) (Postgres, error) {
	p := Postgres{Port: "5432"}
	if strings.Contains(dsn, "://") {
		u, err := url.Parse(dsn)
		if err != nil {
			return Postgres{}, err
		}
		p.Host, p.User, p.Database = u.Hostname(), u.User.Username(), strings.TrimPrefix(u.Path, "/")
		p.Port = cmp.Or(u.Query().Get("port"), u.Port(), p.Port)
		p.Host = cmp.Or(u.Query().Get("host"), p.Host)
	} else {
		for word := range strings.FieldsSeq(dsn) {
			name, value, _ := strings.Cut(word, "=")
			value = strings.Trim(value, "'")
			switch name {
			case "host":
				p.Host = value
			case "port":
				p.Port = value
			case "user":
				p.User = value
			case "dbname":
				p.Database = value
			}
		}
	}
	if p.Host == "" {
		return Postgres{}, errors.New("the DSN names no host")
	}
	return p, nil
}

// Address is what net.Dial takes. A host that is a path is the folder of a socket.
func (p Postgres) Address() (network, address string) {
	if strings.HasPrefix(p.Host, "/") {
		return "unix", path.Join(p.Host, ".s.PGSQL."+p.Port)
	}
	return "tcp", net.JoinHostPort(p.Host, p.Port)
}

// WithPostgres adds a parameter to a DSN of PostgreSQL.
func WithPostgres(dsn, name, value string) string {
	switch {
	case !strings.Contains(dsn, "://"):
		return dsn + " " + name + "=" + value
	case strings.Contains(dsn, "?"):
		return dsn + "&" + name + "=" + value
	default:
		return dsn + "?" + name + "=" + value
	}
}
