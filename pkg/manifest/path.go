// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"unicode/utf8"
)

const (
	extension = ".yaml"
	// maxFileName is what file systems allow one name to be, in bytes; object names
	// may be up to 253, so some do not fit with the extension.
	maxFileName = 255
)

// Path returns where a new file for the object goes (C13), slash-separated and
// relative to the root of the repository: base is the target's path, namespace is
// empty for cluster-scoped objects. A name too long for a file is cut and made
// unique by its hash. Same arguments, same path; different objects, different
// paths.
func Path(base, group, resource, namespace, name string) string {
	directory := resource
	if group != "" {
		directory += "." + group
	}
	return path.Join(base, namespace, directory, fileName(name))
}

func fileName(name string) string {
	if len(name)+len(extension) <= maxFileName {
		return name + extension
	}
	sum := sha256.Sum256([]byte(name))
	suffix := "-" + hex.EncodeToString(sum[:8]) + extension
	cut := maxFileName - len(suffix)
	for cut > 0 && !utf8.RuneStart(name[cut]) {
		cut--
	}
	return name[:cut] + suffix
}
