// Writes sequential.model and graph.model into the working directory, and prints what BigDL itself answers (answers.json).
//
// pip download --no-deps bigdl==0.13.0 pyspark==2.4.6, and put the jar of the one and those of the other (deps/jars) into
// a folder `jars`; then, with Java 17:
//
// jshell -R-Dbigdl.localMode=true -R-Dbigdl.coreNumber=1 -R--add-opens=java.base/java.nio=ALL-UNNAMED \
//     -R--add-opens=java.base/java.lang=ALL-UNNAMED --class-path "$(ls jars/*.jar | tr '\n' ':')" make.jsh
import com.intel.analytics.bigdl.nn.*;
import com.intel.analytics.bigdl.nn.abstractnn.AbstractModule;
import com.intel.analytics.bigdl.python.api.*;
import com.intel.analytics.bigdl.utils.Node;
import java.util.*;
var bigdl = PythonBigDL$.MODULE$.ofFloat();
JTensor tensor(float[] values, int... shape) { return new JTensor(values, shape, "float", null); }
void save(Object model, String path) { bigdl.evaluate((AbstractModule) model); bigdl.saveBigDLModule((AbstractModule) model, path, null, true); }
void show(Object model, List inputs) { for (JTensor t : (List<JTensor>) bigdl.modelForward((AbstractModule) model, inputs, inputs.size() > 1)) System.out.println(Arrays.toString(t.storage()) + " " + Arrays.toString(t.shape())); }
AbstractModule named(Object module, String name) { return (AbstractModule) ((AbstractModule) module).setName(name); }
Node node(Object module, String name, Node... previous) { return (Node) bigdl.createNode(named(module, name), (List) Arrays.asList(previous)); }
Node input(String name) { Node node = (Node) bigdl.createInput(); named(node.element(), name); return node; }
bigdl.setModelSeed(1L);
bigdl.initEngine();
var norm = bigdl.createSpatialBatchNormalization(4, 1e-3, 0.1, true, null, null, null, null, "NCHW");
bigdl.setRunningMean((BatchNormalization) norm, tensor(new float[]{0.1f, -0.2f, 0.3f, 0.05f}, 4));
bigdl.setRunningStd((BatchNormalization) norm, tensor(new float[]{0.5f, 1.5f, 2f, 0.7f}, 4));
var branches = (DynamicContainer) bigdl.createConcat(2);
branches.add(bigdl.createSpatialAveragePooling(2, 2, 2, 2, 0, 0, false, true, true, true, "NCHW"));
branches.add(bigdl.createSpatialConvolution(4, 2, 2, 2, 2, 2, 0, 0, 2, true, null, null, null, null, null, null, true, "NCHW"));
var sequential = (DynamicContainer) bigdl.createSequential();
sequential.add(bigdl.createReshape((List) Arrays.asList(1, 8, 8), true));
sequential.add(bigdl.createSpatialConvolution(1, 4, 3, 3, 1, 1, 1, 1, 1, true, null, null, null, null, null, null, true, "NCHW"));
sequential.add(norm);
sequential.add(bigdl.createReLU(false));
sequential.add(bigdl.createSpatialMaxPooling(3, 3, 2, 2, 0, 0, true, "NCHW"));
sequential.add(branches);
sequential.add(bigdl.createTanh());
sequential.add(bigdl.createView((List) Arrays.asList(24), 0));
sequential.add(bigdl.createDropout(0.5, false, true));
sequential.add(bigdl.createLinear(24, 10, true, null, null, null, null, null, null));
sequential.add(bigdl.createLogSoftMax());
save(sequential, "sequential.model");
float[] pixels = new float[3 * 64];
for (int i = 0; i < pixels.length; i++) pixels[i] = (i * 37 % 101) / 100f;
show(sequential, List.of(tensor(pixels, 3, 64)));
Node a = input("a"), b = input("b");
Node la = node(bigdl.createLinear(3, 4, true, null, null, null, null, null, null), "la", a);
Node lb = node(bigdl.createLinear(2, 4, false, null, null, null, null, null, null), "lb", b);
Node relu = node(bigdl.createReLU(false), "relu", node(bigdl.createCAddTable(false), "sum", la, lb));
Node joined = node(bigdl.createJoinTable(1, 1), "joined", relu, la);
Node normed = node(bigdl.createBatchNormalization(8, 1e-5, 0.1, true, null, null, null, null), "norm", joined);
Node pairs = node(bigdl.createInferReshape((List) Arrays.asList(-1, 2), true), "pairs", normed);
Node soft = node(bigdl.createSoftMax(1), "soft", node(bigdl.createReshape((List) Arrays.asList(8), null), "flat", pairs));
Node sig = node(bigdl.createSigmoid(), "sig", relu);
var graph = bigdl.createModel((List) Arrays.asList(a, b), (List) Arrays.asList(soft, sig));
save(graph, "graph.model");
show(graph, List.of(tensor(new float[]{0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f}, 2, 3), tensor(new float[]{1f, -1f, 0.5f, 2f}, 2, 2)));
/exit
