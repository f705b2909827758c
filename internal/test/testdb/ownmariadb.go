package testdb

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// OwnMariaDB is a MariaDB for one test, which may kill and restart it, and let a replica take over. It writes a binary
// log with GTIDs from its first change on. The test's program registers the driver "mysql".
type OwnMariaDB struct {
	DSN  string // of root, without a database
	Port int

	program string
	dir     string
	user    *syscall.Credential // nil: the user of this process
	server  ownServer
	release func() // of the port
}

// mariadbProgram returns the server's program, and the user to run it.
func mariadbProgram() (program string, as *syscall.Credential, err error) {
	for _, name := range []string{"mariadbd", "/usr/sbin/mariadbd"} { // a user's PATH may lack sbin
		if program, err = exec.LookPath(name); err == nil {
			break
		}
	}
	if err != nil {
		return "", nil, fmt.Errorf("own MariaDB: make services-up S=mariadb says how to install it: %w", err)
	}
	if os.Getuid() == 0 { // the server refuses to run as root
		as, err = credential("mysql")
	}
	return program, as, err
}

// NewMariaDB starts an empty server. The caller ends it with Close.
func NewMariaDB(ctx context.Context) (*OwnMariaDB, error) {
	program, as, err := mariadbProgram()
	if err != nil {
		return nil, err
	}
	port, release, err := reservePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "txonce-own-mariadb-")
	if err != nil {
		release()
		return nil, err
	}
	m := &OwnMariaDB{
		DSN: fmt.Sprintf("root@tcp(127.0.0.1:%d)/", port), Port: port, program: program, dir: dir, user: as,
		release: release,
	}
	if err := m.create(ctx); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

func (m *OwnMariaDB) create(ctx context.Context) error {
	if m.user != nil {
		if err := os.Chown(m.dir, int(m.user.Uid), int(m.user.Gid)); err != nil {
			return err
		}
	}
	if out, err := m.command("mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal",
		"--skip-test-db", "--datadir="+m.dir+"/data").CombinedOutput(); err != nil {
		return fmt.Errorf("mariadb-install-db: %w\n%s", err, out)
	}
	return m.Start(ctx)
}

func (m *OwnMariaDB) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir = m.dir
	cmd.Env = append(os.Environ(), "TMPDIR="+m.dir) // the server's user may not write to another one
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: m.user}
	return cmd
}

// Start starts it again after Kill, with its data and address, and returns when it answers.
func (m *OwnMariaDB) Start(ctx context.Context) error {
	return m.server.start(ctx, m.command, []string{
		m.program, "--no-defaults", "--datadir=" + m.dir + "/data", "--socket=" + m.dir + "/socket", "--pid-file=" + m.dir + "/pid",
		"--bind-address=127.0.0.1", "--port=" + strconv.Itoa(m.Port), "--server-id=" + strconv.Itoa(m.Port),
		"--log-bin=changes", "--sync-binlog=1", "--log-slave-updates", "--binlog-format=ROW", "--character-set-server=utf8mb4",
		"--skip-name-resolve", "--skip-slave-start", "--innodb-buffer-pool-size=64M",
	}, func(ctx context.Context) error { return m.Exec(ctx, "DO 1") })
}

// Exec runs statements one after the other in one session.
func (m *OwnMariaDB) Exec(ctx context.Context, statements ...string) error {
	db, err := sql.Open("mysql", m.DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, statement := range statements {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// NewReplica starts an asynchronous replica, which connects to port, where m or a proxy listens. It returns when the
// replica has all that m has committed before.
func (m *OwnMariaDB) NewReplica(ctx context.Context, port int) (*OwnMariaDB, error) {
	r, err := NewMariaDB(ctx)
	if err != nil {
		return nil, err
	}
	err = r.Exec(ctx, "RESET MASTER", "SET GLOBAL gtid_slave_pos = ''", // mariadb-install-db has left changes of its own
		fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%d, MASTER_USER='root', MASTER_USE_GTID=slave_pos, "+
			"MASTER_CONNECT_RETRY=1", port), "START SLAVE")
	if err == nil {
		err = r.catchUp(ctx, m)
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (m *OwnMariaDB) catchUp(ctx context.Context, source *OwnMariaDB) error {
	db, err := sql.Open("mysql", source.DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	var position string
	if err := db.QueryRowContext(ctx, "SELECT @@gtid_binlog_pos").Scan(&position); err != nil {
		return err
	}
	own, err := sql.Open("mysql", m.DSN)
	if err != nil {
		return err
	}
	defer own.Close()
	var result int
	if err := own.QueryRowContext(ctx, "SELECT MASTER_GTID_WAIT(?, 120)", position).Scan(&result); err != nil {
		return err
	}
	if result != 0 {
		return fmt.Errorf("own MariaDB: the replica has not reached %s within 120 s\n%s", position, m.server.log.tail())
	}
	return nil
}

// Promote makes a replica a primary, with what it has received.
func (m *OwnMariaDB) Promote(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return m.Exec(ctx, "STOP SLAVE", "RESET SLAVE ALL")
}

// Kill ends it with SIGKILL.
func (m *OwnMariaDB) Kill() { m.server.end("KILL") }

// Close ends the server and removes its data.
func (m *OwnMariaDB) Close() {
	m.server.end("KILL")
	_ = os.RemoveAll(m.dir)
	m.release()
}
