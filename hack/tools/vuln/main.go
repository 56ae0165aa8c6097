// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command vuln runs govulncheck, whose flags and patterns it is given, if the
// vulnerability database answers. In a closed network it says in one line that
// nothing was checked, and succeeds. Findings and all other errors fail.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

const (
	databaseVariable = "GOVULNDB" // govulncheck's own
	defaultDatabase  = "https://vuln.go.dev"
)

func main() {
	database := os.Getenv(databaseVariable)
	if database == "" {
		database = defaultDatabase
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := reach(ctx, database); err != nil {
		fmt.Printf("WARNING: VULNERABILITIES WERE NOT CHECKED: the database %s cannot be reached from here: %v\n", database, err)
		return
	}
	os.Exit(govulncheck(os.Args[1:]))
}

// reach asks for the smallest file of the database. Databases in a folder
// (file://) are always there: if not, govulncheck says so.
func reach(ctx context.Context, database string) error {
	if !strings.HasPrefix(database, "http") {
		return nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, database+"/index/db.json", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

func govulncheck(args []string) (code int) {
	cmd := exec.Command("go", append([]string{"tool", "-modfile=hack/tools/go.mod", "govulncheck"}, args...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.ExitCode()
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
