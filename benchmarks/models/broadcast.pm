// A message in a network of six: whoever gets it sends it once, and each neighbour hears it with probability 0.6.
// Does the sixth hear it?
dtmc
const double HEARS = 0.6;
module network
  n1 : [0..2] init 1; // 0 has not heard, 1 will send, 2 has sent
  n2 : [0..2] init 0;
  n3 : [0..2] init 0;
  n4 : [0..2] init 0;
  n5 : [0..2] init 0;
  n6 : [0..2] init 0;
  [] n1=1 & n6=0 ->
    HEARS*HEARS : (n1'=2) & (n2'=max(n2,1)) & (n3'=max(n3,1))
    + HEARS*(1-HEARS) : (n1'=2) & (n2'=max(n2,1))
    + (1-HEARS)*HEARS : (n1'=2) & (n3'=max(n3,1))
    + (1-HEARS)*(1-HEARS) : (n1'=2);
  [] n1!=1 & n2=1 & n6=0 ->
    HEARS*HEARS : (n2'=2) & (n1'=max(n1,1)) & (n4'=max(n4,1))
    + HEARS*(1-HEARS) : (n2'=2) & (n1'=max(n1,1))
    + (1-HEARS)*HEARS : (n2'=2) & (n4'=max(n4,1))
    + (1-HEARS)*(1-HEARS) : (n2'=2);
  [] n1!=1 & n2!=1 & n3=1 & n6=0 ->
    HEARS*HEARS*HEARS : (n3'=2) & (n1'=max(n1,1)) & (n4'=max(n4,1)) & (n5'=max(n5,1))
    + HEARS*HEARS*(1-HEARS) : (n3'=2) & (n1'=max(n1,1)) & (n4'=max(n4,1))
    + HEARS*(1-HEARS)*HEARS : (n3'=2) & (n1'=max(n1,1)) & (n5'=max(n5,1))
    + HEARS*(1-HEARS)*(1-HEARS) : (n3'=2) & (n1'=max(n1,1))
    + (1-HEARS)*HEARS*HEARS : (n3'=2) & (n4'=max(n4,1)) & (n5'=max(n5,1))
    + (1-HEARS)*HEARS*(1-HEARS) : (n3'=2) & (n4'=max(n4,1))
    + (1-HEARS)*(1-HEARS)*HEARS : (n3'=2) & (n5'=max(n5,1))
    + (1-HEARS)*(1-HEARS)*(1-HEARS) : (n3'=2);
  [] n1!=1 & n2!=1 & n3!=1 & n4=1 & n6=0 ->
    HEARS*HEARS*HEARS : (n4'=2) & (n2'=max(n2,1)) & (n3'=max(n3,1)) & (n6'=max(n6,1))
    + HEARS*HEARS*(1-HEARS) : (n4'=2) & (n2'=max(n2,1)) & (n3'=max(n3,1))
    + HEARS*(1-HEARS)*HEARS : (n4'=2) & (n2'=max(n2,1)) & (n6'=max(n6,1))
    + HEARS*(1-HEARS)*(1-HEARS) : (n4'=2) & (n2'=max(n2,1))
    + (1-HEARS)*HEARS*HEARS : (n4'=2) & (n3'=max(n3,1)) & (n6'=max(n6,1))
    + (1-HEARS)*HEARS*(1-HEARS) : (n4'=2) & (n3'=max(n3,1))
    + (1-HEARS)*(1-HEARS)*HEARS : (n4'=2) & (n6'=max(n6,1))
    + (1-HEARS)*(1-HEARS)*(1-HEARS) : (n4'=2);
  [] n1!=1 & n2!=1 & n3!=1 & n4!=1 & n5=1 & n6=0 ->
    HEARS*HEARS : (n5'=2) & (n3'=max(n3,1)) & (n6'=max(n6,1))
    + HEARS*(1-HEARS) : (n5'=2) & (n3'=max(n3,1))
    + (1-HEARS)*HEARS : (n5'=2) & (n6'=max(n6,1))
    + (1-HEARS)*(1-HEARS) : (n5'=2);
  [] n6>0 | (n1!=1 & n2!=1 & n3!=1 & n4!=1 & n5!=1) -> true;
endmodule
label "goal" = n6>0;
label "avoid" = n6=0 & n1!=1 & n2!=1 & n3!=1 & n4!=1 & n5!=1;
