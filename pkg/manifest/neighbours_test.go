// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	configHead = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: shop}\n"
	podHead    = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: shop}\n"
	thingHead  = "apiVersion: example.org/v1\nkind: Thing\nmetadata: {name: t, namespace: shop}\n"
)

// C14: the neighbours of the cases of testdata/edit, which are numbered alike. live
// is the object, head included; each file becomes after, or is refused.
var neighbours = []struct {
	name, before, live, after string
	refused                   Reason
}{
	// A kind's payload is wherever it is.
	{name: "01 priority class, a zero", before: "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: p}\nvalue: 7 # v\n",
		live: "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: p, uid: u}, value: 0}", after: "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: p}\nvalue: 0 # v\n"},
	{name: "01 service account, a false", before: "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: s}\nautomountServiceAccountToken: true\nimagePullSecrets: [{name: r}]\n",
		live: "{apiVersion: v1, kind: ServiceAccount, metadata: {name: s}, automountServiceAccountToken: false, imagePullSecrets: [{name: r}]}", after: "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: s}\nautomountServiceAccountToken: false\nimagePullSecrets: [{name: r}]\n"},
	{name: "01 config map made immutable", before: configHead + "data: {a: b}\nbinaryData: {k: Aw==}\n",
		live: configHead + "data: {a: b}\nbinaryData: {k: Aw==}\nimmutable: true\n", after: configHead + "data: {a: b}\nbinaryData: {k: Aw==}\nimmutable: true\n"},
	{name: "01 status of a kind that means something else by it", before: thingHead + "data: {status: a}\nstatus: {x: y}\n",
		live: thingHead + "data: {status: b}\nstatus: {x: z}\n", after: thingHead + "data: {status: b}\n"},

	// Empty is a value: {} is not [], null, "" or nothing.
	{name: "03 empty beside a change", before: thingHead + "spec:\n  a: {} # m\n  b: [] # l\n  c: \"\"\n  d: null\n  e: 1\n",
		live: thingHead + "spec: {a: {}, b: [], c: '', d: null, e: 2}", after: thingHead + "spec:\n  a: {} # m\n  b: [] # l\n  c: \"\"\n  d: null\n  e: 2\n"},
	{name: "03 map to list", before: thingHead + "spec:\n  a: {} # c\n  b: x\n", live: thingHead + "spec: {a: [], b: x}", after: thingHead + "spec:\n  a: [] # c\n  b: x\n"},
	{name: "03 null to empty string", before: thingHead + "spec:\n  a: ~ # c\n  b: x\n", live: thingHead + "spec: {a: '', b: x}", after: thingHead + "spec:\n  a: \"\" # c\n  b: x\n"},
	{name: "03 nothing to empty string", before: thingHead + "spec:\n  a:\n  b: x\n", live: thingHead + "spec: {a: '', b: x}", after: thingHead + "spec:\n  a: \"\"\n  b: x\n"},
	{name: "03 the last element goes", before: thingHead + "spec:\n  a:\n  - x\n  b: y\n", live: thingHead + "spec: {a: [], b: y}", after: thingHead + "spec:\n  a: []\n  b: y\n"},
	{name: "03 an empty element among others", before: thingHead + "spec:\n  a:\n  - {}\n  - x: 1\n", live: thingHead + "spec: {a: [{}, {x: 2}]}", after: thingHead + "spec:\n  a:\n  - {}\n  - x: 2\n"},

	// A string stays one for all readers, in whatever style it is written.
	{name: "05 plain to a number's look", before: configHead + "data:\n  a: text # c\n", live: configHead + "data: {a: '0123'}", after: configHead + "data:\n  a: \"0123\" # c\n"},
	{name: "05 single quotes stay", before: configHead + "data: {a: 'no'}\n", live: configHead + "data: {a: '1e3'}", after: configHead + "data: {a: '1e3'}\n"},
	{name: "05 a new key like a word", before: configHead + "data:\n  a: b\n", live: configHead + "data: {a: b, 'on': 'off', '8': '~'}", after: configHead + "data:\n  a: b\n  \"8\": \"~\"\n  \"on\": \"off\"\n"},
	{name: "05 number to the same string", before: thingHead + "spec:\n  port: 80\n", live: thingHead + "spec: {port: '80'}", after: thingHead + "spec:\n  port: \"80\"\n"},
	{name: "05 string to the same number", before: thingHead + "spec:\n  port: \"80\" # p\n", live: thingHead + "spec: {port: 80}", after: thingHead + "spec:\n  port: 80 # p\n"},

	// Words that kubectl reads as booleans.
	{name: "07 yes to no", before: thingHead + "spec:\n  a: yes # c\n  b: on\n", live: thingHead + "spec: {a: false, b: true}", after: thingHead + "spec:\n  a: false # c\n  b: on\n"},
	{name: "07 the word becomes a string", before: thingHead + "spec:\n  a: yes\n  b: off\n", live: thingHead + "spec: {a: 'yes', b: false}", after: thingHead + "spec:\n  a: \"yes\"\n  b: off\n"},
	{name: "07 octal and hexadecimal", before: thingHead + "spec:\n  a: 0o17\n  b: 0x1F\n  c: 0755\n  d: 1\n", live: thingHead + "spec: {a: 15, b: 31, c: 493, d: 2}", after: thingHead + "spec:\n  a: 0o17\n  b: 0x1F\n  c: 0755\n  d: 2\n"},
	{name: "07 a key that is a word", before: thingHead + "spec:\n  on: a\n  x: b\n", live: thingHead + "spec: {'true': a, x: c}", after: thingHead + "spec:\n  on: a\n  x: c\n"},
	{name: "07 underscores", before: thingHead + "spec: {a: 1_000, b: x}\n", live: thingHead + "spec: {a: 1000, b: z}", after: thingHead + "spec: {a: 1_000, b: z}\n"},

	// Markers are where YAML has them, and nowhere else.
	{name: "09 first of two", before: configHead + "data: {a: b}\n---\na: b\n", live: configHead + "data: {a: c}", after: configHead + "data: {a: c}\n---\na: b\n"},
	{name: "09 a marker at the top, with a tab", before: "---\t# x\n" + configHead + "data: {a: b}\n", live: configHead + "data: {a: c}", after: "---\t# x\n" + configHead + "data: {a: c}\n"},
	{name: "09 the end of a document", before: configHead + "data: {a: b}\n...\n---\na: b\n", live: configHead + "data: {a: c}", after: configHead + "data: {a: c}\n...\n---\na: b\n"},
	{name: "09 four dashes and a marker in a text", before: configHead + "data:\n  a: |\n    ----\n    --- x\n    ...\n  b: x\n", live: configHead + "data: {a: \"----\\n--- x\\n...\\n\", b: z}", after: configHead + "data:\n  a: |\n    ----\n    --- x\n    ...\n  b: z\n"},
	{name: "09 a text that gets a marker", before: configHead + "data:\n  a: |\n    x\n  b: y\n", live: configHead + "data: {a: \"x\\n---\\n\", b: y}", after: configHead + "data:\n  a: |\n    x\n    ---\n  b: y\n"},
	{name: "09 an added key at the end of the first", before: configHead + "data:\n  a: b\n---\na: b\n", live: configHead + "data: {a: b, c: d}", after: configHead + "data:\n  a: b\n  c: d\n---\na: b\n"},

	// Anchors: what is shared is not edited for one.
	{name: "10 beside a merge", before: thingHead + "x: &x {a: 1}\nspec:\n  <<: *x\n  b: 2\n", live: thingHead + "x: {a: 1}\nspec: {a: 1, b: 3}\n", after: thingHead + "x: &x {a: 1}\nspec:\n  <<: *x\n  b: 3\n"},
	{name: "10 a merged value is overridden here only", before: thingHead + "x: &x {a: 1}\nspec:\n  <<: *x\n  b: 2\n", live: thingHead + "x: {a: 1}\nspec: {a: 9, b: 2}\n", after: thingHead + "x: &x {a: 1}\nspec:\n  <<: *x\n  b: 2\n  a: 9\n"},
	{name: "10 a merged value goes", before: thingHead + "x: &x {a: 1, c: 1}\nspec:\n  <<: *x\n  b: 2\n", live: thingHead + "x: {a: 1, c: 1}\nspec: {a: 1, b: 2}\n", refused: NotEditable},
	{name: "10 through an alias", before: thingHead + "x: &x [1]\nspec: {a: *x}\n", live: thingHead + "x: [1]\nspec: {a: [2]}\n", refused: NotEditable},
	{name: "10 within the anchor", before: thingHead + "x: &x\n  a: 1\nspec: *x\n", live: thingHead + "x: {a: 2}\nspec: {a: 1}\n", refused: NotEditable},
	{name: "10 a sibling of an alias", before: thingHead + "x: &x v\nspec:\n- *x\n- b # c\n", live: thingHead + "x: v\nspec: [v, d]\n", after: thingHead + "x: &x v\nspec:\n- *x\n- d # c\n"},

	// Line ends are the file's.
	{name: "11 an added key, CRLF", before: strings.ReplaceAll(configHead+"data:\n  a: b\n", "\n", "\r\n"), live: configHead + "data: {a: b, c: d}", after: strings.ReplaceAll(configHead+"data:\n  a: b\n  c: d\n", "\n", "\r\n")},
	{name: "11 a block, CRLF", before: strings.ReplaceAll(configHead+"data:\n  a: |\n    x\n    y\n  b: z\n", "\n", "\r\n"), live: configHead + "data: {a: \"x\\nw\\n\", b: z}", after: strings.ReplaceAll(configHead+"data:\n  a: |\n    x\n    w\n  b: z\n", "\n", "\r\n")},
	{name: "11 a removed key, CRLF", before: strings.ReplaceAll(configHead+"data:\n  # c\n  a: b\n  c: d\n", "\n", "\r\n"), live: configHead + "data: {c: d}", after: strings.ReplaceAll(configHead+"data:\n  c: d\n", "\n", "\r\n")},
	{name: "11 a mark and no line end", before: "\ufeff" + configHead + "data: {a: b}", live: configHead + "data: {a: c}", after: "\ufeff" + configHead + "data: {a: c}"},
	{name: "11 trailing blanks and tabs", before: configHead + "data:  \n  a:   b \t# c \n", live: configHead + "data: {a: c}", after: configHead + "data:  \n  a:   c \t# c \n"},

	// Comments go with what they are about.
	{name: "12 the last element", before: thingHead + "spec:\n# a\n- name: a\n# b\n- name: b # x\n", live: thingHead + "spec: [{name: a}]", after: thingHead + "spec:\n# a\n- name: a\n"},
	{name: "12 one between", before: thingHead + "spec:\n- a # 1\n# two\n- b # 2\n# three\n- c # 3\n", live: thingHead + "spec: [a, c]", after: thingHead + "spec:\n- a # 1\n# three\n- c # 3\n"},
	{name: "12 a comment apart stays", before: thingHead + "spec:\n- a\n\n# section\n\n# b\n- b\n- c\n", live: thingHead + "spec: [a, c]", after: thingHead + "spec:\n- a\n\n# section\n\n- c\n"},
	{name: "12 a new one at the front", before: thingHead + "spec:\n- name: b # x\n", live: thingHead + "spec: [{name: a}, {name: b}]", after: thingHead + "spec:\n- name: a\n- name: b # x\n"},
	{name: "12 a renamed one keeps its line", before: thingHead + "spec:\n- name: a # x\n  image: i\n", live: thingHead + "spec: [{name: b, image: i}]", after: thingHead + "spec:\n- name: b # x\n  image: i\n"},
	{name: "12 a nested element", before: podHead + "spec:\n  containers:\n  - name: a\n    args:\n    # one\n    - x\n    - y # z\n", live: podHead + "spec: {containers: [{name: a, args: [y]}]}", after: podHead + "spec:\n  containers:\n  - name: a\n    args:\n    - y # z\n"},

	// Only what others wrote about the object is left out, by its exact name.
	{name: "13 it was in the file", before: "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\n  annotations:\n    a: b\n    kubectl.kubernetes.io/last-applied-configuration: |\n      {\"data\":{\"a\":\"secret\"}}\ndata: {a: b}\n",
		live:  "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, annotations: {a: b, kubectl.kubernetes.io/last-applied-configuration: x}}, data: {a: b}}",
		after: "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\n  annotations:\n    a: b\ndata: {a: b}\n"},
	{name: "13 it was all there was", before: "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\n  annotations:\n    deployment.kubernetes.io/revision: \"1\"\ndata: {a: b}\n",
		live:  "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, annotations: {deployment.kubernetes.io/revision: '2'}}, data: {a: b}}",
		after: "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\ndata: {a: b}\n"},
	{name: "13 names that look alike", before: "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\n  annotations:\n    deployment.kubernetes.io/revisions: \"1\"\n    kubernetes.io/change-cause: a\n",
		live:  "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, annotations: {deployment.kubernetes.io/revisions: '2', kubernetes.io/change-cause: a}}}",
		after: "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\n  annotations:\n    deployment.kubernetes.io/revisions: \"2\"\n    kubernetes.io/change-cause: a\n"},
	{name: "13 in a list's template", before: thingHead + "spec:\n  metadata:\n    annotations: {kubectl.kubernetes.io/last-applied-configuration: a}\n",
		live: thingHead + "spec: {metadata: {annotations: {kubectl.kubernetes.io/last-applied-configuration: b}}}", after: thingHead + "spec:\n  metadata:\n    annotations: {kubectl.kubernetes.io/last-applied-configuration: b}\n"},

	// Equal quantities are equal where the kind has quantities.
	{name: "14 a config map has none", before: configHead + "data:\n  requests: 1000m\n", live: configHead + "data: {requests: '1'}", after: configHead + "data:\n  requests: \"1\"\n"},
	{name: "14 nor has a custom resource", before: thingHead + "spec: {resources: {requests: {cpu: 1000m}}}\n", live: thingHead + "spec: {resources: {requests: {cpu: '1'}}}", after: thingHead + "spec: {resources: {requests: {cpu: \"1\"}}}\n"},
	{name: "14 a claim", before: "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: p}\nspec:\n  resources: {requests: {storage: 1024Mi}}\n  storageClassName: a\n",
		live:  "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: p}, spec: {resources: {requests: {storage: 1Gi}}, storageClassName: b}}",
		after: "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: p}\nspec:\n  resources: {requests: {storage: 1024Mi}}\n  storageClassName: b\n"},
	{name: "14 a quota and a limit range", before: "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nspec:\n  hard:\n    requests.cpu: 2000m\n    pods: 3\n",
		live: "{apiVersion: v1, kind: ResourceQuota, metadata: {name: q}, spec: {hard: {requests.cpu: '2', pods: '4'}}}", after: "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nspec:\n  hard:\n    requests.cpu: 2000m\n    pods: \"4\"\n"},
	{name: "14 a limit range", before: "apiVersion: v1\nkind: LimitRange\nmetadata: {name: l}\nspec:\n  limits:\n  - type: Container\n    max: {cpu: 0.5}\n    default: {cpu: 500m, memory: 1024Mi}\n",
		live: "{apiVersion: v1, kind: LimitRange, metadata: {name: l}, spec: {limits: [{type: Container, max: {cpu: 500m}, default: {cpu: 250m, memory: 1Gi}}]}}", after: "apiVersion: v1\nkind: LimitRange\nmetadata: {name: l}\nspec:\n  limits:\n  - type: Container\n    max: {cpu: 0.5}\n    default: {cpu: 250m, memory: 1024Mi}\n"},
	{name: "14 one that did change, in a file of ours", before: "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\nspec:\n  containers:\n  - image: a\n    name: c\n    resources:\n      limits:\n        cpu: 1000m\n        memory: 1Gi\n",
		live: "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: a, resources: {limits: {cpu: '1', memory: 2Gi}}}]}}", after: "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\nspec:\n  containers:\n  - image: a\n    name: c\n    resources:\n      limits:\n        cpu: 1000m\n        memory: 2Gi\n"},

	// Text is what was typed.
	{name: "15 behind wide characters", before: configHead + "data: {a: 👋, é: x, z: y} # 🚀\n", live: configHead + "data: {a: 👋, é: 'é', z: w}", after: configHead + "data: {a: 👋, é: é, z: w} # 🚀\n"},
	{name: "15 an escape stays", before: configHead + "data:\n  a: \"\\U0001F680 \\xe9\"\n  b: x\n", live: configHead + "data: {a: '🚀 é', b: z}", after: configHead + "data:\n  a: \"\\U0001F680 \\xe9\"\n  b: z\n"},
	{name: "15 joined emoji are new", before: configHead + "data:\n  a: x\n", live: configHead + "data: {a: '👨‍👩‍👧 ❤️'}", after: configHead + "data:\n  a: 👨‍👩‍👧 ❤️\n"},
	{name: "15 what cannot be seen is escaped", before: configHead + "data:\n  a: x\n", live: configHead + "data: {a: \"\\u202eabc\\u200b\"}", after: configHead + "data:\n  a: \"\\u202Eabc\\u200B\"\n"},

	// What stands beside a value, or folds it, stays.
	{name: "16 a comment of many blanks", before: podHead + "spec:\n  nodeName: a     # {\"$imagepolicy\": \"x:y\"}\n", live: podHead + "spec: {nodeName: bbb}", after: podHead + "spec:\n  nodeName: bbb     # {\"$imagepolicy\": \"x:y\"}\n"},
	{name: "16 beside a folded text", before: configHead + "data:\n  a: >\n    one\n    two\n\n    three\n  b: x # c\n", live: configHead + "data: {a: \"one two\\nthree\\n\", b: z}", after: configHead + "data:\n  a: >\n    one\n    two\n\n    three\n  b: z # c\n"},
	{name: "16 a value becomes a text, its comment moves nowhere", before: configHead + "data:\n  a: x\n  b: y # c\n", live: configHead + "data: {a: \"1\\n2\\n\", b: y}", after: configHead + "data:\n  a: |\n    1\n    2\n  b: y # c\n"},
	{name: "16 a quoted image, a setter", before: podHead + "spec:\n  containers:\n  - image: \"a:1\" # kpt-set: x\n    name: c\n", live: podHead + "spec: {containers: [{name: c, image: 'a:2'}]}", after: podHead + "spec:\n  containers:\n  - image: \"a:2\" # kpt-set: x\n    name: c\n"},

	// Brackets stay brackets, and JSON stays JSON.
	{name: "17 JSON", before: "{\n  \"apiVersion\": \"v1\",\n  \"kind\": \"ConfigMap\",\n  \"metadata\": {\"name\": \"c\"},\n  \"data\": {\"a\": \"b\"}\n}\n", live: "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: c}}", after: "{\n  \"apiVersion\": \"v1\",\n  \"kind\": \"ConfigMap\",\n  \"metadata\": {\"name\": \"c\"},\n  \"data\": {\"a\": \"c\"}\n}\n"},
	{name: "17 over lines, with a comma at the end", before: thingHead + "spec: {\n  a: [1, 2],  # x\n  b: c,\n}\n", live: thingHead + "spec: {a: [1, 3], b: c}", after: thingHead + "spec: {\n  a: [1, 3],  # x\n  b: c,\n}\n"},
	{name: "17 an element goes", before: thingHead + "spec: {a: [x, y, z]} # c\n", live: thingHead + "spec: {a: [x, z]}", after: thingHead + "spec: {a: [x, z]} # c\n"},
	{name: "17 all elements go", before: thingHead + "spec: {a: [x, y]} # c\n", live: thingHead + "spec: {a: []}", after: thingHead + "spec: {a: []} # c\n"},
	{name: "17 a structure is new", before: thingHead + "spec: {a: x} # c\n", live: thingHead + "spec: {a: x, b: {c: ['yes', {d: 1}]}}", after: thingHead + "spec: {a: x, b: {c: [\"yes\", {d: 1}]}} # c\n"},
	{name: "17 JSON gets a key", before: "{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {\"name\": \"c\"}, \"data\": {\"a\": \"b\"}}\n", live: "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: b, x: 'y z'}}", after: "{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {\"name\": \"c\"}, \"data\": {\"a\": \"b\", \"x\": \"y z\"}}\n"},

	{name: "17 JSON, a number becomes a string", before: "{\"apiVersion\": \"example.org/v1\", \"kind\": \"Thing\", \"metadata\": {\"name\": \"t\"}, \"spec\": [1]}\n", live: "{apiVersion: example.org/v1, kind: Thing, metadata: {name: t}, spec: [\"a\\x7f\\n<\", {b: c}]}", after: "{\"apiVersion\": \"example.org/v1\", \"kind\": \"Thing\", \"metadata\": {\"name\": \"t\"}, \"spec\": [\"a\\u007F\\n<\", {\"b\": \"c\"}]}\n"},

	// Two values for one key.
	{name: "18 equal ones", before: configHead + "data:\n  a: b\n  a: b\n", live: configHead + "data: {a: b}", refused: DuplicateKey},
	{name: "18 in brackets, deep down", before: thingHead + "spec: {a: [{b: 1, b: 2}]}\n", live: thingHead + "spec: {a: [{b: 2}]}", refused: DuplicateKey},
	{name: "18 at the top", before: configHead + "data: {a: b}\ndata: {a: c}\n", live: configHead + "data: {a: c}", refused: DuplicateKey},
	{name: "18 quoted and plain", before: configHead + "data:\n  a: b\n  \"a\": c\n", live: configHead + "data: {a: c}", refused: DuplicateKey},
	{name: "18 the same name in two maps is none", before: thingHead + "spec:\n- {a: 1}\n- {a: 1}\n", live: thingHead + "spec: [{a: 1}, {a: 2}]", after: thingHead + "spec:\n- {a: 1}\n- {a: 2}\n"},

	// Lists of objects.
	{name: "19 in a second document", before: "a: b\n---\napiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: c, namespace: shop}\n  data: {a: b} # x\n", live: configHead + "data: {a: c}", after: "a: b\n---\napiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: c, namespace: shop}\n  data: {a: c} # x\n"},
	{name: "19 a list of one kind", before: "apiVersion: v1\nkind: ConfigMapList\nitems: [{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop}, data: {a: b}}]\n", live: configHead + "data: {a: c}", after: "apiVersion: v1\nkind: ConfigMapList\nitems: [{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop}, data: {a: c}}]\n"},
	{name: "19 twice in it", before: "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop}}\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop}}\n", live: configHead + "data: {a: c}", refused: SeveralOwners},
	{name: "19 not in it", before: "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: d, namespace: shop}}\n", live: configHead + "data: {a: c}", refused: OtherObject},
	{name: "19 a new field in an item", before: "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: c, namespace: shop}\n- x: y\n", live: configHead + "data: {a: c}", after: "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: c, namespace: shop}\n  data:\n    a: c\n- x: y\n"},

	// Dates and modes.
	{name: "20 a day, unquoted, stays", before: configHead + "data:\n  d: 2024-04-01\n  e: x\n", live: configHead + "data: {d: '2024-04-01', e: z}", after: configHead + "data:\n  d: 2024-04-01\n  e: z\n"},
	{name: "20 a new one is quoted", before: configHead + "data:\n  d: x\n", live: configHead + "data: {d: '2001-12-14 21:59:43.10 -5'}", after: configHead + "data:\n  d: \"2001-12-14 21:59:43.10 -5\"\n"},
	{name: "20 sexagesimal", before: configHead + "data:\n  d: x\n", live: configHead + "data: {d: '22:22'}", after: configHead + "data:\n  d: \"22:22\"\n"},
	{name: "20 a mode changes", before: podHead + "spec:\n  volumes:\n  - name: s\n    secret: {secretName: s, defaultMode: 0400} # m\n", live: podHead + "spec: {volumes: [{name: s, secret: {secretName: s, defaultMode: 416}}]}", after: podHead + "spec:\n  volumes:\n  - name: s\n    secret: {secretName: s, defaultMode: 416} # m\n"},
	{name: "20 a mode beside a change", before: podHead + "spec:\n  volumes:\n  - name: s\n    secret: {secretName: s, defaultMode: 0o400} # m\n", live: podHead + "spec: {volumes: [{name: s, secret: {secretName: t, defaultMode: 256}}]}", after: podHead + "spec:\n  volumes:\n  - name: s\n    secret: {secretName: t, defaultMode: 0o400} # m\n"},
}

func TestEditNeighbours(t *testing.T) {
	for _, c := range neighbours {
		t.Run(c.name, func(t *testing.T) {
			intent, err := Render(object(t, c.live))
			if err != nil {
				t.Fatal(err)
			}
			got, err := Edit([]byte(c.before), intent)
			if c.refused != "" {
				var refused *RefusedError
				if !errors.As(err, &refused) || refused.Reason != c.refused || refused.Line == 0 {
					t.Errorf("want %s with its line, got %v and\n%s", c.refused, err, got)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.after, string(got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if again, err := Edit(got, intent); err != nil || string(again) != string(got) {
				t.Errorf("the second time changes something: %v\n%s", err, again)
			}
		})
	}
}

// Each case has three neighbours at least.
func TestNeighboursOfEachCase(t *testing.T) {
	count := map[string]int{}
	for _, c := range neighbours {
		count[c.name[:2]]++
	}
	for _, number := range []string{"01", "03", "05", "07", "09", "10", "11", "12", "13", "14", "15", "16", "17", "18", "19", "20"} {
		if count[number] < 3 {
			t.Errorf("case %s has %d", number, count[number])
		}
	}
}
